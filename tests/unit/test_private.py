"""Files and folders of this user alone, and logs that hold no secret at any moment."""

import logging
import os
import stat
from pathlib import Path

import pytest

from seatrial.runs.progress import log_file
from seatrial.system.private import (
    check_parents,
    check_private_folder,
    closed_folder,
    own_folder,
    private_folder,
    private_opener,
    read_opener,
    read_private,
)
from seatrial.system.rawlog import RawLog, write_log
from seatrial.text.redact import Secrets

pytestmark = pytest.mark.usefixtures("no_umask")


def mode_of(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def write(path: Path, mode: str = "w", text: str = "text") -> None:
    with open(path, mode, opener=private_opener) as file:
        file.write(text)


def test_a_file_is_0600_without_a_umask(tmp_path: Path) -> None:
    write(tmp_path / "new")
    assert mode_of(tmp_path / "new") == 0o600


def test_existing_file_is_truncated_and_gets_mode_0600(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_text("longer than text")
    path.chmod(0o666)
    write(path)
    assert (path.read_text(), mode_of(path)) == ("text", 0o600)


def test_appending_keeps_existing_content(tmp_path: Path) -> None:
    write(tmp_path / "log", "a", "one ")
    write(tmp_path / "log", "a", "two")
    assert (tmp_path / "log").read_text() == "one two"


def test_no_link_is_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "link").symlink_to(victim)
    with pytest.raises(PermissionError, match="is a symbolic link; links are not followed"):
        write(tmp_path / "link")
    (tmp_path / "hard").hardlink_to(victim)
    with pytest.raises(PermissionError, match="has other hard links"):
        write(tmp_path / "hard")
    assert victim.read_text() == "mine"


def test_a_fifo_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match=r"fifo"):
        write(tmp_path / "fifo")
    with pytest.raises(PermissionError, match="is no regular file"):
        read_private(tmp_path / "fifo", 10)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_and_folders_of_others_are_refused(tmp_path: Path) -> None:
    path, folder = tmp_path / "file", tmp_path / "folder"
    path.write_text("theirs")
    folder.mkdir(mode=0o700)
    for each in (path, folder):
        os.chown(each, 65534, 65534)
    for refused in (
        lambda: write(path),
        lambda: read_private(path, 10),
        lambda: private_folder(folder),
    ):
        with pytest.raises(PermissionError, match="belongs to user id 65534, not to you"):
            refused()
    assert path.read_text() == "theirs"


def test_reading_refuses_long_linked_or_writable_files(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path)
    assert read_private(path, 4) == b"text"
    with pytest.raises(OSError, match="is longer than 3 bytes"):
        read_private(path, 3)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(PermissionError, match="is a symbolic link"):
        read_private(tmp_path / "link", 4)
    path.chmod(0o602)
    with pytest.raises(PermissionError, match="is writable by others"):
        read_private(path, 4)


def test_a_folder_and_its_parents_are_0700_without_a_umask(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "a" / "b")
    assert (mode_of(folder), mode_of(folder.parent)) == (0o700, 0o700)
    check_private_folder(folder)


def test_a_folder_that_others_can_read_becomes_0700(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir(mode=0o755)
    with pytest.raises(
        PermissionError, match=r"is open to other users \(mode 0755\); must be 0700"
    ):
        check_private_folder(folder)
    assert mode_of(closed_folder(folder)) == 0o700


def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o777)
    (folder / "planted").touch()
    for refused in (closed_folder, private_folder, own_folder):
        with pytest.raises(
            PermissionError, match=r"is open to other users \(mode 0777\); must be 0700"
        ):
            refused(folder)
    assert mode_of(folder) == 0o777
    (folder / "planted").unlink()
    assert mode_of(closed_folder(folder)) == 0o700


def test_a_folder_of_the_system_keeps_its_mode(tmp_path: Path) -> None:
    """`SEATRIAL_HISTORY` or a log may lie in any folder; root may close /dev to everybody."""
    system = tmp_path / "dev"
    system.mkdir(mode=0o755)
    with log_file(system / "run.log", Secrets()):
        pass
    assert mode_of(system) == 0o755
    assert mode_of(private_folder(system)) == 0o755


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")
    os.mkfifo(tmp_path / "fifo")
    for name, why in (("link", "is a symbolic link"), ("fifo", "is no regular file")):
        with pytest.raises(PermissionError, match=why):
            read_opener(str(tmp_path / name), os.O_RDONLY)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(private_folder(tmp_path / "folder"))
    with pytest.raises(PermissionError, match="is a symbolic link"):
        private_folder(tmp_path / "link")


def test_a_folder_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "runs").mkdir(parents=True, mode=0o755)
    (tmp_path / "link").symlink_to("shared/runs")
    for mode, legal in ((0o755, True), (0o1777, True), (0o777, False)):
        shared.chmod(mode)
        for path in (
            shared / "runs" / "r1",
            tmp_path / "link" / "r1",
            shared / "runs" / "new" / "r1",
        ):
            if legal:
                check_parents(path)
            else:
                with pytest.raises(
                    PermissionError, match=r"lies in \S*/shared, which others may write to"
                ):
                    check_parents(path)


def test_world_writable_mount_of_a_pod_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet makes an emptyDir of mode 0777; a folder inside it that is open to all is
    refused.
    """
    volume = tmp_path / "seatrial"
    (volume / "shared").mkdir(parents=True)
    volume.chmod(0o2777)
    (volume / "shared").chmod(0o777)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == volume)
    with pytest.raises(PermissionError, match="which others may write to"):
        check_parents(volume / "runs" / "r1")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    check_parents(volume / "runs" / "r1")
    with pytest.raises(PermissionError, match="shared, which others may write to"):
        check_parents(volume / "shared" / "r1")


def test_circular_symbolic_links_are_refused(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="has too many symbolic links"):
        check_parents(tmp_path / "circle" / "r1")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_root_writes_below_no_folder_or_link_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("/tmp")
    for each in (tmp_path / "theirs", tmp_path / "link"):
        os.chown(each, 65534, 65534, follow_symlinks=False)
        with pytest.raises(
            PermissionError, match=f"lies in {each}, which belongs to user id 65534"
        ):
            check_parents(each / "runs" / "r1")
        with monkeypatch.context() as patch:
            patch.setenv("SUDO_UID", "65534")
            check_parents(each / "runs" / "r1")


SECRETS = Secrets(("s3cr3t-value",), ("LICENSE_FILE",))


def test_no_secret_is_in_the_file_at_any_moment(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "x.log"
    log = RawLog(path, SECRETS)
    for piece in (
        "begin s3cr",
        "3t-value and LICENSE_FI",
        "LE=27000@host\nhf_ABCDEFGHIJKL",
        "MNOPQRSTUV\nlast s3cr3t-va",
    ):
        log.write(piece)
        assert "s3c" not in path.read_text()
        assert "27000" not in path.read_text()
    assert path.read_text() == "begin *** and LICENSE_FILE=***\n***\n"
    log.write("lue")
    log.close()
    assert path.read_text().endswith("last ***")


def test_raw_log_returns_redacted_lines_as_they_are_written(tmp_path: Path) -> None:
    log = RawLog(tmp_path / "x.log", SECRETS)
    assert log.write("a s3cr3t-value\nrest") == "a ***\n"
    assert log.close() == "rest"
    assert log.close() == ""


def test_raw_log_without_a_path_only_redacts() -> None:
    assert RawLog(None, SECRETS).write("a s3cr3t-value\n") == "a ***\n"


def test_reopened_log_is_appended_to(tmp_path: Path) -> None:
    for text in ("one\n", "two\n"):
        with RawLog(tmp_path / "x.log", SECRETS, append=True) as log:
            log.write(text)
    assert (tmp_path / "x.log").read_text() == "one\ntwo\n"


def test_a_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seatrial.system.rawlog.MAX_CHARACTERS", 100)
    with RawLog(tmp_path / "x.log", SECRETS) as log:
        assert [len(log.write("y" * 39 + "\n")) for _ in range(5)] == [40] * 5
    text = (tmp_path / "x.log").read_text()
    assert text.startswith(("y" * 39 + "\n") * 2 + "y" * 20 + "\n[seatrial: the log ends here")
    assert len(text) < 200


@pytest.mark.usefixtures("no_umask")
def test_log_is_readable_by_its_user_only(tmp_path: Path) -> None:
    write_log(tmp_path / "logs" / "x.log", b"\xff s3cr3t-value", SECRETS)
    assert (tmp_path / "logs" / "x.log").read_text() == "\ufffd ***"
    assert stat.S_IMODE((tmp_path / "logs" / "x.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "logs").stat().st_mode) == 0o700


def test_write_log_does_not_follow_symbolic_links(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "x.log").symlink_to(tmp_path / "victim")
    with caplog.at_level(logging.WARNING):
        write_log(tmp_path / "x.log", "text", SECRETS)
    assert (tmp_path / "victim").read_text() == "mine"
    assert "symbolic link" in caplog.text


def test_a_full_disk_ends_a_log_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = RawLog(tmp_path / "x.log", SECRETS)
    assert log._file is not None
    os.dup2(os.open("/dev/full", os.O_WRONLY), log._file.fileno())
    with caplog.at_level(logging.WARNING):
        assert log.write("one\n") == "one\n"
        assert log.write("two\n") == "two\n"
        log.close()
    assert caplog.messages == [f"{tmp_path / 'x.log'} ends early: No space left on device"]
