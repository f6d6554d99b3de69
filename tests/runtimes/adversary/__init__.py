"""Attempts of a hostile library, with their results in the sandbox. The docs contain the same table."""

from __future__ import annotations

from typing import NamedTuple


class Attempt(NamedTuple):
    """Attempts that one row of the table in `docs/concepts/trust.md` describes."""

    names: tuple[str, ...]  # functions in `attempts.c`
    description: str
    result: str = "denied"


ATTEMPTS = (
    Attempt(("read_keys",), "read keys next to the model: `.env.local`, `.git-credentials`, `id_rsa`, `sub/.env`"),
    Attempt(("read_home",), "read tokens in the home folder, such as those of Hugging Face, Cargo and SSH"),
    Attempt(("list_folder",), "list the folder of the model"),
    Attempt(("read_link", "read_hard_link", "read_handle"), "read a file through a link or a file handle"),
    Attempt(("create_file", "change_file", "change_library"), "create or change a file, also of its own environment"),
    Attempt(("delete_file", "rename_file", "truncate_file"), "delete, rename or truncate a file"),
    Attempt(("change_mode", "change_owner"), "change the mode or owner of a file"),
    Attempt(("change_times", "change_attributes", "change_flags"), "change the times, attributes or flags of a file"),
    Attempt(("lease_file", "watch_folder"), "block a file with a lease, or watch a folder"),
    Attempt(("create_device", "change_kernel_setting"), "create a device, or change a kernel setting"),
    Attempt(("read_attributes",), "read the extended attributes of a file"),
    Attempt(
        ("see_metadata", "see_link"),
        "read the size and times of any file, and the target of any link, whose path is known",
        "possible",
    ),
    Attempt(("connect_tcp", "open_udp", "open_netlink"), "use the network"),
    Attempt(("bind_abstract_socket", "open_io_uring"), "use Unix sockets or `io_uring`"),
    Attempt(("fork_process", "start_program"), "start processes and programs"),
    Attempt(
        ("signal_gate", "signal_group", "signal_thread", "queue_signal", "signal_by_descriptor", "signal_by_file"),
        "signal or kill other processes",
    ),
    Attempt(("trace_gate", "read_memory", "copy_memory"), "trace onnxgate, or read its memory"),
    Attempt(("read_variables", "read_guard"), "read environment variables of onnxgate through `/proc`"),
    Attempt(("read_descriptors", "enter_folder", "compare_process"), "use the open files or the folder of onnxgate"),
    Attempt(("read_command_line",), "read the command lines of processes", "possible"),
    Attempt(
        ("limit_gate", "change_priority", "change_io_priority", "change_affinity", "change_scheduler"),
        "change the limits, the priority or the scheduling of other processes",
    ),
    Attempt(("offer_to_killer",), "select onnxgate for the OOM killer"),
    Attempt(("inherited_files", "open_terminal"), "use inherited files, or write to the terminal"),
    Attempt(("share_memory", "share_memory_file"), "share memory with other processes"),
    Attempt(("create_semaphore", "create_queue", "create_posix_queue"), "use semaphores and message queues"),
    Attempt(("read_token",), "find tokens in its own environment variables"),
    Attempt(("dump_core", "write_large_file"), "write a core dump, or a larger file than allowed"),
    Attempt(("raise_memory_limit",), "raise its own memory limit", "possible"),
    Attempt(("enter_namespace", "mount_folder", "change_root"), "enter a namespace, mount a folder, change the root"),
    Attempt(("load_bpf", "count_events", "handle_page_faults"), "load BPF, count events, handle page faults"),
    Attempt(("use_keyring", "read_kernel_log"), "use the keyring of the kernel, or read its log"),
    Attempt(("change_clock", "change_host_name"), "change the clock or the host name"),
)


def format_table() -> str:
    """Return the table as Markdown."""
    rows = [f"| {attempt.description} | {attempt.result} |" for attempt in ATTEMPTS]
    return "\n".join(("| attempt | result |", "|---|---|", *rows))
