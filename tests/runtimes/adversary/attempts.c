/*
 * A hostile shared library. When it is loaded, it attempts everything in tests/runtimes/adversary/__init__.py.
 *
 * It is a library of custom operators, whose registration fails with the results, and the native part of a hostile
 * package for Python or Node.js, which reads them from ATTEMPTS. OUTSIDE is a folder that it must not access, PORT a port on which a process listens. Each attempt returns 0
 * if it succeeds and an error number if it does not. Attempts call the kernel directly and change nothing that matters.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define ATTEMPT(name) static int name(void)
#define CALL(...) failed(syscall(__VA_ARGS__))

static char buffer[4096];
static char results[16384];

static int failed(long value) { return value < 0 ? errno : 0; }

/* Return an error number only if all calls failed. */
static int any(int first, int second) { return first && second ? first : 0; }

static const char *outside(const char *name) {
  static char paths[4][4096];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", getenv("OUTSIDE"), name);
  return path;
}

static const char *own(const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", getenv("HOME"), name);
  return path;
}

static const char *of_gate(const char *name) {
  static char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", getppid(), name);
  return path;
}

static int open_and_close(const char *path, int flags) {
  int file = open(path, flags | O_CLOEXEC | O_NOCTTY, 0600);
  if (file < 0) return errno;
  if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY) && read(file, buffer, sizeof buffer) < 0) {
    int error = errno;
    close(file);
    return error;
  }
  close(file);
  return 0;
}

/* Files. */
ATTEMPT(read_keys) {
  const char *names[] = {".env.local", ".git-credentials", ".git/config", ".vault-token", "id_rsa", "sub/.env"};
  int error = 0;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    char path[256];
    snprintf(path, sizeof path, "models/%s", names[i]);
    if (!(error = open_and_close(outside(path), O_RDONLY))) return 0;
  }
  return error;
}
ATTEMPT(read_home) {
  const char *names[] = {".cache/huggingface/token", ".cargo/credentials.toml", ".ssh/id_rsa"};
  int error = 0;
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
    char path[256];
    snprintf(path, sizeof path, "home/%s", names[i]);
    if (!(error = open_and_close(outside(path), O_RDONLY))) return 0;
  }
  return error;
}
ATTEMPT(list_folder) { return open_and_close(outside("models"), O_RDONLY | O_DIRECTORY); }
ATTEMPT(read_link) {
  unlink(own("link"));
  return failed(symlink(outside("key"), own("link"))) ?: open_and_close(own("link"), O_RDONLY);
}
ATTEMPT(read_hard_link) {
  unlink(own("hard"));
  return failed(link(outside("key"), own("hard"))) ?: open_and_close(own("hard"), O_RDONLY);
}
ATTEMPT(read_handle) {
  struct { struct file_handle handle; unsigned char bytes[128]; } file = {{128, 0}, {0}};
  int mount, folder = open(own(""), O_RDONLY | O_DIRECTORY);
  if (syscall(SYS_name_to_handle_at, AT_FDCWD, outside("key"), &file.handle, &mount, 0)) return errno;
  int opened = syscall(SYS_open_by_handle_at, folder, &file.handle, O_RDONLY);
  return failed(opened);
}
ATTEMPT(create_file) { return open_and_close(outside("new"), O_WRONLY | O_CREAT); }
ATTEMPT(change_file) { return open_and_close(outside("key"), O_WRONLY); }
ATTEMPT(change_library) { return open_and_close(outside("attempts.so"), O_WRONLY); }
ATTEMPT(truncate_file) { return CALL(SYS_truncate, outside("spare"), 0L); }
ATTEMPT(rename_file) { return failed(rename(outside("renamed"), own("renamed"))); }
ATTEMPT(delete_file) { return failed(unlink(outside("spare"))); }
ATTEMPT(change_mode) {
  int file = open(outside("attempts.so"), O_RDONLY);
  int error = any(CALL(SYS_fchmodat, AT_FDCWD, outside("key"), 0666), CALL(SYS_fchmod, file, 0666));
  error = any(error, CALL(452, AT_FDCWD, outside("key"), 0666, 0)); /* fchmodat2 */
  close(file);
  return error;
}
ATTEMPT(change_owner) {
  int file = open(outside("attempts.so"), O_RDONLY);
  int error = any(CALL(SYS_fchownat, AT_FDCWD, outside("key"), -1, getgid(), 0), CALL(SYS_fchown, file, -1, getgid()));
  close(file);
  return error;
}
ATTEMPT(change_times) { return CALL(SYS_utimensat, AT_FDCWD, outside("key"), NULL, 0); }
ATTEMPT(change_attributes) {
  struct { uint64_t value; uint32_t size, flags; } fields = {(uint64_t)(uintptr_t)"1", 1, 0};
  int set = failed(setxattr(outside("key"), "user.attempt", "1", 1, 0));
  int newer = CALL(463, AT_FDCWD, outside("key"), 0, "user.attempt", &fields, sizeof fields); /* setxattrat */
  return any(any(set, newer), failed(removexattr(outside("key"), "user.attempt")));
}
ATTEMPT(change_flags) {
  int flags = 0, file = open(outside("attempts.so"), O_RDONLY);
  if (ioctl(file, FS_IOC_GETFLAGS, &flags)) return errno;
  return failed(ioctl(file, FS_IOC_SETFLAGS, &flags));
}
ATTEMPT(lease_file) {
  int file = open(own("lease"), O_RDONLY | O_CREAT, 0600);
  return failed(fcntl(file, F_SETLEASE, F_RDLCK));
}
ATTEMPT(watch_folder) {
  int watcher = syscall(SYS_inotify_init1, 0);
  return watcher < 0 ? errno : failed(syscall(SYS_inotify_add_watch, watcher, outside("models"), 0x100));
}
ATTEMPT(create_device) { unlink(own("disk")); return failed(mknod(own("disk"), S_IFBLK | 0600, 0)); }
ATTEMPT(change_kernel_setting) { return open_and_close("/proc/sys/vm/overcommit_memory", O_WRONLY); }
ATTEMPT(read_attributes) {
  struct { uint64_t value; uint32_t size, flags; } fields = {(uint64_t)(uintptr_t)buffer, sizeof buffer, 0};
  int listed = failed(listxattr(outside("key"), buffer, sizeof buffer));
  int read = failed(getxattr(outside("key"), "user.secret", buffer, sizeof buffer));
  int newer = CALL(464, AT_FDCWD, outside("key"), 0, "user.secret", &fields, sizeof fields); /* getxattrat */
  return any(any(listed, read), any(newer, CALL(465, AT_FDCWD, outside("key"), 0, buffer, sizeof buffer)));
}
ATTEMPT(see_link) { return failed(readlink(outside("pointer"), buffer, sizeof buffer)); }
ATTEMPT(see_metadata) { struct stat status; return failed(stat(outside("key"), &status)); }

/* Network. */
ATTEMPT(connect_tcp) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(getenv("PORT")))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int connection = socket(AF_INET, SOCK_STREAM, 0);
  if (connection < 0) return errno;
  int error = failed(connect(connection, (struct sockaddr *)&address, sizeof address));
  close(connection);
  return error;
}
static int open_socket(int family, int kind, int protocol) {
  int opened = socket(family, kind, protocol);
  if (opened < 0) return errno;
  close(opened);
  return 0;
}
ATTEMPT(open_udp) { return open_socket(AF_INET, SOCK_DGRAM, 0); }
ATTEMPT(open_netlink) { return open_socket(AF_NETLINK, SOCK_RAW, 0); }
ATTEMPT(bind_abstract_socket) {
  struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0onnxgate-attempt"};
  int opened = socket(AF_UNIX, SOCK_STREAM, 0);
  if (opened < 0) return errno;
  int error = failed(bind(opened, (struct sockaddr *)&address, sizeof address));
  close(opened);
  return error;
}
ATTEMPT(open_io_uring) { return CALL(SYS_io_uring_setup, 1, memset(buffer, 0, sizeof buffer)); }

/* Other processes. */
ATTEMPT(fork_process) {
  long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  return child < 0 ? errno : failed(waitpid(child, NULL, 0));
}
ATTEMPT(start_program) {
  int child = vfork();
  if (child == 0) { execl("/bin/true", "true", NULL); _exit(1); }
  return child < 0 ? errno : failed(waitpid(child, NULL, 0));
}
ATTEMPT(signal_gate) { return failed(kill(getppid(), SIGURG)); }
ATTEMPT(signal_group) { signal(SIGURG, SIG_IGN); return failed(kill(0, SIGURG)); }
ATTEMPT(signal_thread) { return any(CALL(SYS_tgkill, getppid(), getppid(), SIGURG), CALL(SYS_tkill, getppid(), SIGURG)); }
ATTEMPT(queue_signal) {
  siginfo_t info = {.si_signo = SIGURG, .si_code = SI_QUEUE};
  return CALL(SYS_rt_sigqueueinfo, getppid(), SIGURG, &info);
}
ATTEMPT(signal_by_descriptor) {
  int process = syscall(SYS_pidfd_open, getppid(), 0);
  return process < 0 ? errno : failed(syscall(SYS_pidfd_send_signal, process, 0, NULL, 0));
}
ATTEMPT(signal_by_file) {
  int ends[2];
  return failed(pipe(ends)) ?: failed(fcntl(ends[0], F_SETOWN, getppid()));
}
ATTEMPT(trace_gate) {
  if (syscall(SYS_ptrace, PTRACE_SEIZE, getppid(), 0L, 0L)) return errno;
  syscall(SYS_ptrace, PTRACE_DETACH, getppid(), 0L, 0L);
  return 0;
}
ATTEMPT(read_memory) { return open_and_close(of_gate("mem"), O_WRONLY); }
ATTEMPT(copy_memory) {
  /* Without an address of the other process, EFAULT means that the access is allowed. */
  struct iovec local = {buffer, 8}, remote = {(void *)8, 8};
  int error = CALL(SYS_process_vm_readv, getppid(), &local, 1L, &remote, 1L, 0L);
  return error == EFAULT ? 0 : error;
}
ATTEMPT(read_variables) { return open_and_close(of_gate("environ"), O_RDONLY); }
ATTEMPT(read_descriptors) { return failed(readlink(of_gate("fd/0"), buffer, sizeof buffer)); }
ATTEMPT(enter_folder) { return open_and_close(of_gate("cwd"), O_RDONLY | O_DIRECTORY); }
ATTEMPT(read_guard) {
  /* The worker's guard is its child, which started before the sandbox. */
  char path[64];
  int child = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  FILE *children = fopen(path, "r");
  if (!children || fscanf(children, "%d", &child) != 1) return ESRCH;
  snprintf(path, sizeof path, "/proc/%d/environ", child);
  return open_and_close(path, O_RDONLY);
}
ATTEMPT(compare_process) { return CALL(SYS_kcmp, getppid(), getppid(), 0, 0, 0); }
ATTEMPT(limit_gate) {
  struct rlimit limit;
  int error = CALL(SYS_prlimit64, getppid(), RLIMIT_NOFILE, NULL, &limit);
  return error ?: CALL(SYS_prlimit64, getppid(), RLIMIT_NOFILE, &limit, NULL);
}
ATTEMPT(change_priority) { return CALL(SYS_setpriority, PRIO_PROCESS, getppid(), getpriority(PRIO_PROCESS, getppid())); }
ATTEMPT(change_io_priority) { return CALL(SYS_ioprio_set, 1, getppid(), 2 << 13 | 4); }
ATTEMPT(change_affinity) {
  cpu_set_t cores;
  int error = failed(sched_getaffinity(getppid(), sizeof cores, &cores));
  return error ?: failed(sched_setaffinity(getppid(), sizeof cores, &cores));
}
ATTEMPT(change_scheduler) {
  struct sched_param none = {0};
  return failed(sched_setscheduler(getppid(), SCHED_OTHER, &none));
}
ATTEMPT(offer_to_killer) { return open_and_close(of_gate("oom_score_adj"), O_WRONLY); }
ATTEMPT(inherited_files) {
  for (int file = 0; file < 256; file++) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    ssize_t length = readlink(path, buffer, sizeof buffer - 1);
    if (length < 0) continue;
    buffer[length] = 0;
    if (!strncmp(buffer, "socket:", 7) || !strncmp(buffer, "/dev/pts/", 9) || !strcmp(buffer, "/dev/tty")) return 0;
    if (!strncmp(buffer, getenv("OUTSIDE"), strlen(getenv("OUTSIDE"))) && !strstr(buffer, "attempts.so")) return 0;
  }
  return ENOENT;
}
ATTEMPT(read_command_line) { return open_and_close(of_gate("cmdline"), O_RDONLY); }

/* Inter-process communication. */
ATTEMPT(share_memory) {
  int memory = syscall(SYS_shmget, 0L, 4096L, 01600);
  return memory < 0 ? errno : CALL(SYS_shmctl, memory, 0, NULL);
}
ATTEMPT(share_memory_file) {
  int error = open_and_close("/dev/shm/onnxgate-attempt", O_WRONLY | O_CREAT);
  unlink("/dev/shm/onnxgate-attempt");
  return error;
}
ATTEMPT(create_semaphore) {
  int semaphore = syscall(SYS_semget, 0, 1, 01600);
  return semaphore < 0 ? errno : CALL(SYS_semctl, semaphore, 0, 0, 0);
}
ATTEMPT(create_queue) {
  int queue = syscall(SYS_msgget, 0, 01600);
  return queue < 0 ? errno : CALL(SYS_msgctl, queue, 0, NULL);
}
ATTEMPT(create_posix_queue) {
  int error = CALL(SYS_mq_open, "onnxgate-attempt", O_RDWR | O_CREAT, 0600, NULL);
  syscall(SYS_mq_unlink, "onnxgate-attempt");
  return error;
}
ATTEMPT(open_terminal) { char byte = 0; return any(open_and_close("/dev/tty", O_RDWR), failed(ioctl(0, TIOCSTI, &byte))); }

/* Environment variables and limits. */
ATTEMPT(read_token) { return getenv("GITHUB_TOKEN") || getenv("INPUT_TOKEN") ? 0 : ENOENT; }
ATTEMPT(dump_core) { struct rlimit limit = {1 << 20, 1 << 20}; return failed(setrlimit(RLIMIT_CORE, &limit)); }
ATTEMPT(write_large_file) {
  int file = open(own("large"), O_RDWR | O_CREAT, 0600);
  int error = failed(ftruncate(file, 1L << 40));
  close(file);
  unlink(own("large"));
  return error;
}
ATTEMPT(raise_memory_limit) {
  struct rlimit limit;
  getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = limit.rlim_max;
  return failed(setrlimit(RLIMIT_DATA, &limit));
}

/* The kernel and the machine. */
ATTEMPT(enter_namespace) { return any(failed(unshare(CLONE_NEWUSER)), failed(unshare(CLONE_NEWNS))); }
ATTEMPT(mount_folder) {
  int context = syscall(SYS_fsopen, "tmpfs", 0);
  return any(failed(context), CALL(SYS_mount, "none", own(""), "tmpfs", 0L, NULL));
}
ATTEMPT(change_root) { return failed(chroot("/")); }
ATTEMPT(load_bpf) { return CALL(SYS_bpf, 0, memset(buffer, 0, sizeof buffer) ? (buffer[0] = 2, buffer[4] = 4, buffer[8] = 4, buffer[12] = 1, buffer) : 0, 72); }
ATTEMPT(count_events) {
  memset(buffer, 0, sizeof buffer);
  buffer[0] = 1; /* a software event of all kinds of code */
  buffer[4] = 112;
  return CALL(SYS_perf_event_open, buffer, 0, -1, -1, 0);
}
ATTEMPT(handle_page_faults) { return CALL(SYS_userfaultfd, 1); }
ATTEMPT(use_keyring) { return CALL(SYS_add_key, "user", "onnxgate-attempt", "x", 1L, -1); }
ATTEMPT(read_kernel_log) { return CALL(SYS_syslog, 10, NULL, 0); }
ATTEMPT(change_clock) { struct timespec now; clock_gettime(CLOCK_REALTIME, &now); return CALL(SYS_clock_settime, CLOCK_REALTIME, &now); }
ATTEMPT(change_host_name) { gethostname(buffer, sizeof buffer); return failed(sethostname(buffer, strlen(buffer))); }

#define ALL(DO) \
  DO(read_keys) DO(read_home) DO(list_folder) DO(read_link) DO(read_hard_link) DO(read_handle) DO(create_file) \
  DO(change_file) DO(change_library) DO(truncate_file) DO(rename_file) DO(delete_file) DO(change_mode) \
  DO(change_owner) DO(change_times) DO(change_attributes) DO(change_flags) DO(lease_file) DO(watch_folder) \
  DO(create_device) DO(change_kernel_setting) DO(see_metadata) DO(see_link) DO(read_attributes) \
  DO(connect_tcp) DO(open_udp) DO(open_netlink) \
  DO(bind_abstract_socket) DO(open_io_uring) DO(fork_process) DO(start_program) DO(signal_gate) DO(signal_group) \
  DO(signal_thread) DO(queue_signal) DO(signal_by_descriptor) DO(signal_by_file) DO(trace_gate) DO(read_memory) \
  DO(copy_memory) DO(read_variables) DO(read_descriptors) DO(enter_folder) DO(read_guard) DO(compare_process) \
  DO(limit_gate) DO(change_priority) DO(change_io_priority) DO(change_affinity) DO(change_scheduler) \
  DO(offer_to_killer) DO(inherited_files) DO(read_command_line) DO(share_memory) \
  DO(share_memory_file) DO(create_semaphore) DO(create_queue) DO(create_posix_queue) DO(open_terminal) \
  DO(read_token) DO(dump_core) DO(write_large_file) DO(raise_memory_limit) DO(mount_folder) \
  DO(change_root) DO(load_bpf) DO(count_events) DO(handle_page_faults) DO(use_keyring) DO(read_kernel_log) \
  DO(change_clock) DO(change_host_name) DO(enter_namespace)

__attribute__((constructor)) static void attempt_all(void) {
  if (!getenv("OUTSIDE") || !getenv("PORT")) return;
  signal(SIGXFSZ, SIG_IGN);
#define RUN(name) \
  errno = 0; \
  sprintf(results + strlen(results), #name "=%d ", name());
  ALL(RUN)
  setenv("ATTEMPTS", results, 1);
}

const char *attempt_results(void) { return results; }

/* The entry point of libraries of custom operators. The first function of the API creates a status. */
typedef struct { const void *const *(*get_api)(uint32_t version); } ApiBase;
void *RegisterCustomOps(void *options, const ApiBase *base) {
  (void)options;
  return ((void *(*)(int, const char *))base->get_api(1)[0])(1, results);
}
