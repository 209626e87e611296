"""Database roles with the least that each process needs: `scripts/roles plan|apply|user`."""

import argparse
import json
import os
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, PyMongoError

from indexes import privileges
from scripts import database
from scripts.database import Failure
from ticketing.settings import Settings

SERVER_SELECTION_TIMEOUT_MS = 10_000
PASSWORD_LENGTH_MIN = 20

EPILOG = """examples, with TICKETING_MONGODB_URI of somebody who may manage users:
  scripts/roles plan
  scripts/roles apply
  API_PASSWORD=... scripts/roles user api --role api --password-env API_PASSWORD
  scripts/roles user 'CN=api,O=Tickets' --role api --x509

exit codes: 0 done or no difference, 1 plan: some difference, or the database failed,
2 wrong use"""

Document = dict[str, Any]


def _differences(client: MongoClient[Document], name: str) -> list[Document]:
    """The roles that are not as declared, as they should be."""
    wanted = {
        privileges.role_name(name, process): privileges.privileges(name, process)
        for process in privileges.PROCESSES
    }
    answer = client.admin.command(
        {"rolesInfo": [{"role": role, "db": "admin"} for role in wanted], "showPrivileges": True}
    )
    found = {role["role"]: _comparable(role["privileges"]) for role in answer["roles"]}
    return [
        {"role": role, "exists": role in found, "privileges": wanted[role]}
        for role in sorted(wanted)
        if found.get(role) != _comparable(wanted[role])
    ]


def _comparable(listed: list[Document]) -> set[str]:
    """Privileges without the order in which the server happens to keep them."""
    return {
        json.dumps(
            {"resource": each["resource"], "actions": sorted(each["actions"])}, sort_keys=True
        )
        for each in listed
    }


def _plan(client: MongoClient[Document], name: str, _: argparse.Namespace) -> int:
    differences = _differences(client, name)
    print(json.dumps(differences, indent=2))
    return 1 if differences else 0


def _apply(client: MongoClient[Document], name: str, _: argparse.Namespace) -> int:
    for role in _differences(client, name):
        command = "updateRole" if role["exists"] else "createRole"
        client.admin.command({command: role["role"], "privileges": role["privileges"], "roles": []})
        print(f"{'Changed' if role['exists'] else 'Made'} the role {role['role']}.")
    print("All roles are as declared.")
    return 0


def _user(client: MongoClient[Document], name: str, arguments: argparse.Namespace) -> int:
    roles = [{"role": privileges.role_name(name, arguments.role), "db": "admin"}]
    made: Document = {"createUser": arguments.name, "roles": roles}
    if arguments.x509:
        client["$external"].command(made)
    else:
        password = os.environ.get(arguments.password_env, "")
        if len(password) < PASSWORD_LENGTH_MIN:
            raise Failure(
                f"{arguments.password_env} must hold a password of at least"
                f" {PASSWORD_LENGTH_MIN} characters, such as from openssl rand -base64 24."
            )
        client.admin.command(made | {"pwd": password, "mechanisms": ["SCRAM-SHA-256"]})
    print(f"Made the user {arguments.name} with the role {roles[0]['role']}.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/roles",
        description="Make a database role for each process, with what that process does and"
        " nothing beside it, and users who have one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("plan", help="print the roles that are not as declared")
    commands.add_parser("apply", help="make them so")
    user = commands.add_parser("user", help="make a user with one of the roles")
    user.add_argument("name", help="the user's name, or a certificate's subject with --x509")
    user.add_argument("--role", required=True, choices=sorted(privileges.PROCESSES))
    how = user.add_mutually_exclusive_group(required=True)
    how.add_argument("--password-env", metavar="VARIABLE", help="the variable with the password")
    how.add_argument("--x509", action="store_true", help="known by a certificate")
    return parser


def main() -> int:
    """Run one command."""
    arguments = _parser().parse_args()
    settings = Settings.from_environment()
    work = {"plan": _plan, "apply": _apply, "user": _user}[arguments.command]
    try:
        client: MongoClient[Document] = MongoClient(
            settings.mongodb_uri,
            serverSelectionTimeoutMS=SERVER_SELECTION_TIMEOUT_MS,
            appname="ticketing-roles",
        )
        with client:
            return work(client, settings.database, arguments)
    except (ConfigurationError, ValueError) as error:
        raise Failure(f"TICKETING_MONGODB_URI can't be used: {error}") from None
    except PyMongoError as error:
        raise database.failure(error) from None


if __name__ == "__main__":
    database.exit_with(main)
