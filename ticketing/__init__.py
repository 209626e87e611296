"""Event ticketing that survives a flash sale. The import order is the life of a ticket."""
