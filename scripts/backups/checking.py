"""Whether a backup is as it was written, down to the last byte, and reaches without a gap."""

from pathlib import Path

from scripts.backups import oplog, snapshot
from scripts.backups.files import Damaged, checksum, instant_from, timestamp_from
from scripts.backups.oplog import Say, Segment


def check(folder: Path, say: Say) -> list[Segment]:
    """Read every file and compare; returns the segments. Raises Damaged, which names the file."""
    about = snapshot.manifest(folder)
    for name, file in about["files"].items():
        _compare(folder / snapshot.FOLDER / name, file["bytes"], file["sha256"])
    say(
        f"The snapshot of {about['instant']} is whole: {len(about['collections'])} collections,"
        f" {sum(file['bytes'] for file in about['files'].values())} bytes."
    )
    segments = oplog.segments(folder)
    for segment in segments:
        _compare(oplog.entries_file(folder, segment.number), segment.size_bytes, segment.sha256)
    if not segments:
        say("Nothing of the oplog is archived: it can be restored to that moment alone.")
        return []
    if segments[0].after > timestamp_from(about["clusterTime"]):
        raise Damaged("The oplog's first segment begins after the snapshot: there is a gap.")
    say(
        f"The oplog is archived without a gap up to {segments[-1].through_instant.isoformat()}:"
        f" {len(segments)} segments, {sum(each.entries for each in segments)} entries."
    )
    return segments


def reaches(folder: Path, segments: list[Segment]) -> tuple[str, str]:
    """The first and the last instant that the backup can be restored to."""
    first = instant_from(snapshot.manifest(folder)["instant"])
    last = max([first, *(segment.through_instant for segment in segments)])
    return first.isoformat(), last.isoformat()


def _compare(path: Path, size_bytes: int, sha256: str) -> None:
    if not path.exists():
        raise Damaged(f"{path} is missing.")
    found_bytes, found_sum = checksum(path)
    if found_bytes != size_bytes:
        raise Damaged(f"{path} is damaged: it has {found_bytes} bytes instead of {size_bytes}.")
    if found_sum != sha256:
        raise Damaged(f"{path} is damaged: its checksum does not fit.")
