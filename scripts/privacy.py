"""What the law gives a fan, on their request by mail: `scripts/privacy export --fan FAN`.

The same as the fan can do by the API. Who asks has to be made sure of before.
"""

import argparse
import asyncio
import json
import sys

from pymongo.errors import PyMongoError

from scripts import database
from ticketing import clock, mongo, privacy
from ticketing.settings import Settings

EPILOG = """examples:
  scripts/privacy export --fan fan_ada > ada.json
  scripts/privacy erase --fan fan_ada

exit codes: 0 done, 1 something is still owed to the fan or the database failed, 2 wrong use"""


async def _run(settings: Settings, action: str, fan_id: str) -> None:
    client = await mongo.connect(settings)
    try:
        if action == "export":
            held = await privacy.export(client.database, fan_id)
            print(json.dumps(held, indent=2, ensure_ascii=False))
            return
        record = await privacy.erase(client.database, settings, fan_id, clock.now())
        orders = sum(record.get("counts", {}).values())
        print(f"{fan_id} is forgotten; {orders} orders are kept as {record['pseudonym']}.")
    finally:
        await client.close()


def main() -> int:
    """Export or erase one fan."""
    parser = argparse.ArgumentParser(
        prog="scripts/privacy",
        description="Print all that is held of a fan as JSON, or forget the fan. Orders are kept"
        " for the books, under a pseudonym.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=["export", "erase"])
    parser.add_argument("--fan", required=True, metavar="FAN", help="the fan's id")
    database.add_data_argument(parser)
    arguments = parser.parse_args()
    try:
        asyncio.run(_run(database.settings(arguments.data), arguments.action, arguments.fan))
    except privacy.ErasureBlocked as blocked:
        print(f"{blocked.detail} They are: {', '.join(blocked.order_ids)}", file=sys.stderr)
        return 1
    except PyMongoError as error:
        raise database.failure(error) from None
    return 0


if __name__ == "__main__":
    database.exit_with(main)
