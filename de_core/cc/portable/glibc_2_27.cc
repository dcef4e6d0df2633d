// Replaces functions of newer C libraries, so that wheels work with glibc 2.27 and the libstdc++ of
// GCC 7.
//
// The linker's option --wrap=NAME lets calls of NAME call __wrap_NAME (DE_OLDEST_GLIBC in
// CMakeLists.txt). The older versions of functions, such as pow@GLIBC_2.2.5, are in every newer
// glibc too. x86-64 only.

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>

#define DE_OLDER(alias, symbol, version) __asm__(".symver " #alias "," #symbol "@" version)

extern "C" {

// glibc 2.29 added a pow and an exp2 that do not call matherr. The results are equal.
double OlderPow(double base, double exponent);
DE_OLDER(OlderPow, pow, "GLIBC_2.2.5");
double __wrap_pow(double base, double exponent) { return OlderPow(base, exponent); }
double OlderExp2(double exponent);
DE_OLDER(OlderExp2, exp2, "GLIBC_2.2.5");
double __wrap_exp2(double exponent) { return OlderExp2(exponent); }

// glibc 2.33 replaced the inline function stat by a symbol.
int OlderStat(int version, const char* path, struct stat* result);
DE_OLDER(OlderStat, __xstat, "GLIBC_2.2.5");
int __wrap_stat(const char* path, struct stat* result) { return OlderStat(1, path, result); }

// glibc 2.34 moved these functions from libpthread to libc.
int OlderGetClock(pthread_t thread, clockid_t* clock);
DE_OLDER(OlderGetClock, pthread_getcpuclockid, "GLIBC_2.2.5");
int __wrap_pthread_getcpuclockid(pthread_t thread, clockid_t* clock) {
  return OlderGetClock(thread, clock);
}
int OlderTryLock(pthread_mutex_t* mutex);
DE_OLDER(OlderTryLock, pthread_mutex_trylock, "GLIBC_2.2.5");
int __wrap_pthread_mutex_trylock(pthread_mutex_t* mutex) { return OlderTryLock(mutex); }
int OlderSetName(pthread_t thread, const char* name);
DE_OLDER(OlderSetName, pthread_setname_np, "GLIBC_2.12");
int __wrap_pthread_setname_np(pthread_t thread, const char* name) {
  return OlderSetName(thread, name);
}

void* OlderFind(void* library, const char* name);
DE_OLDER(OlderFind, dlsym, "GLIBC_2.2.5");

// glibc 2.30 added this function. An older glibc waits by the wall clock: a change of that clock
// changes the wait.
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
  using Wait = int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
  static Wait* const wait =
      reinterpret_cast<Wait*>(OlderFind(RTLD_DEFAULT, "pthread_cond_clockwait"));
  if (wait != nullptr) return wait(condition, mutex, clock, until);
  constexpr std::int64_t kSecond = 1'000'000'000;
  timespec from, wall;
  clock_gettime(clock, &from);
  clock_gettime(CLOCK_REALTIME, &wall);
  std::int64_t nanoseconds = std::int64_t{wall.tv_nsec} + until->tv_nsec - from.tv_nsec;
  std::int64_t seconds = wall.tv_sec + until->tv_sec - from.tv_sec;
  seconds += nanoseconds / kSecond;
  nanoseconds %= kSecond;
  if (nanoseconds < 0) {
    nanoseconds += kSecond;
    --seconds;
  }
  const timespec end{seconds, nanoseconds};
  return pthread_cond_timedwait(condition, mutex, &end);
}

// glibc 2.32 added this variable: it is 0 if the process may have several threads. TensorFlow's
// always has.
char __wrap___libc_single_threaded = 0;

// GCC 11 and 12 added these two to libstdc++.
[[noreturn]] void __wrap__ZSt28__throw_bad_array_new_lengthv() {
  throw std::bad_array_new_length();
}
void OlderWait(std::condition_variable* condition, std::unique_lock<std::mutex>& lock);
DE_OLDER(OlderWait, _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "GLIBCXX_3.4.11");
void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>& lock) {
  OlderWait(condition, lock);
}

}  // extern "C"
