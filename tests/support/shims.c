// Replaces functions of the system in a process that preloads this library (`shims.py`). Until a
// test asks for more, each function does what the system's does.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BILLION INT64_C(1000000000)

static int64_t add(int64_t* to, int64_t value) {
  return __atomic_add_fetch(to, value, __ATOMIC_RELAXED);
}

static int64_t nanos_at(clockid_t clock) {
  struct timespec now;
  syscall(SYS_clock_gettime, clock, &now);
  return now.tv_sec * BILLION + now.tv_nsec;
}

// --- std::chrono::system_clock: seconds that a test lets pass at once.

static int64_t passed_nanos;

void let_pass(int64_t seconds) { add(&passed_nanos, seconds * BILLION); }

int64_t _ZNSt6chrono3_V212system_clock3nowEv(void) {
  return nanos_at(CLOCK_REALTIME) + add(&passed_nanos, 0);
}

// --- Virtual time, between `begin_virtual_time` and `end_virtual_time`. The steady clock advances
// by 5 ms whenever it is read, and by each pause. A thread's CPU clock advances by 1 ms whenever it
// is read. All threads together use 1000 cores if the process is busy, otherwise none.

static int is_virtual, is_busy;
static int64_t skipped, worked, paused;

void begin_virtual_time(int busy) {
  paused = 0;
  is_busy = busy;
  is_virtual = 1;
}

/// Returns the nanoseconds of all pauses.
int64_t end_virtual_time(void) {
  is_virtual = 0;
  return paused;
}

static int64_t steady(void) { return nanos_at(CLOCK_MONOTONIC) + add(&skipped, 0); }

int64_t _ZNSt6chrono3_V212steady_clock3nowEv(void) {
  if (is_virtual) add(&skipped, 5000000);
  return steady();
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  const int of_process = clock == CLOCK_PROCESS_CPUTIME_ID;
  if (!is_virtual || !(of_process || clock < 0)) return syscall(SYS_clock_gettime, clock, time);
  const int64_t now = !of_process ? add(&worked, 1000000) : is_busy ? 1000 * steady() : 0;
  time->tv_sec = now / BILLION;
  time->tv_nsec = now % BILLION;
  return 0;
}

int nanosleep(const struct timespec* duration, struct timespec* left) {
  if (!is_virtual) return syscall(SYS_nanosleep, duration, left);
  const int64_t nanos = duration->tv_sec * BILLION + duration->tv_nsec;
  add(&skipped, nanos);
  add(&paused, nanos);
  return 0;
}

// --- The calls of madvise: address, bytes and advice of each.

int64_t advised[3 * 4096];
int64_t advised_count;

int madvise(void* begin, size_t bytes, int advice) {
  int64_t* const at = advised + 3 * ((add(&advised_count, 1) - 1) % 4096);
  at[0] = (int64_t)begin;
  at[1] = (int64_t)bytes;
  at[2] = advice;
  return syscall(SYS_madvise, begin, bytes, advice);
}

// --- Bytes written past the page cache, and others, after `begin_counting_writes`. From then on
// O_DIRECT is accepted for every file, and not passed on: the file system does not matter.

static int count_writes;
int64_t written_direct, written_cached;
static char is_direct[4096];

void begin_counting_writes(void) {
  count_writes = 1;
  written_direct = written_cached = 0;
  memset(is_direct, 0, sizeof(is_direct));
}

int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  long argument = va_arg(arguments, long);
  va_end(arguments);
  if (count_writes && command == F_SETFL) {
    is_direct[file] = (argument & O_DIRECT) != 0;
    argument &= ~(long)O_DIRECT;
  }
  return syscall(SYS_fcntl, file, command, argument);
}

static ssize_t counted(int file, ssize_t bytes) {
  if (count_writes && bytes > 0) add(is_direct[file] ? &written_direct : &written_cached, bytes);
  return bytes;
}

ssize_t write(int file, const void* from, size_t bytes) {
  return counted(file, syscall(SYS_write, file, from, bytes));
}

ssize_t pwrite(int file, const void* from, size_t bytes, off_t at) {
  return counted(file, syscall(SYS_pwrite64, file, from, bytes, at));
}

// --- The error of a sync of a folder: FOLDER_SYNC_ERRNO.

int fsync(int descriptor) {
  const char* const code = getenv("FOLDER_SYNC_ERRNO");
  struct stat found;
  if (code != NULL && fstat(descriptor, &found) == 0 && S_ISDIR(found.st_mode)) {
    errno = atoi(code);
    return -1;
  }
  return syscall(SYS_fsync, descriptor);
}
