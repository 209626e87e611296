"""Backups: a snapshot at one cluster time, the oplog after it, and the way back from both.

A backup is one folder:

    snapshot/DATABASE/COLLECTION.bson, COLLECTION.metadata.json   as mongodump lays them out
    snapshot.json                                                 what belongs to it; written last
    oplog/0000000001.bson, 0000000001.json, head.json             segments of the oplog after it
"""
