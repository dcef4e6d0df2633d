// Runs verbs of a table while memory runs out: the n-th allocation fails, for n = 1, 2 …, each time
// in a new process. Then memory is available again, and the rows of the table must be in an allowed
// state.
//
// alloc_failure.cc replaces the global operator new, and wraps mmap, which gives the engine its
// page memory.
#ifndef DE_CORE_TESTING_ALLOC_FAILURE_H_
#define DE_CORE_TESTING_ALLOC_FAILURE_H_

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/testing/sanitized.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine::testing {

/// Which allocations fail.
enum class Fault : uint8_t {
  kOnce,     ///< only the n-th
  kForGood,  ///< the n-th and all later ones, until memory is available again
};

/// Counts the allocations of all threads while `armed`, and decides which of them fail.
struct Faults {
  static inline std::atomic<bool> armed{false};
  static inline std::atomic<int64_t> calls{0};
  static inline std::atomic<bool> fired{false};
  static inline std::atomic<uint64_t> mapped{0};  ///< bytes of page memory
  static inline int64_t at = 0;
  static inline Fault fault = Fault::kOnce;
  static inline thread_local bool quiet = false;

  static void Arm(Fault kind, int64_t nth) {
    calls = 0;
    mapped = 0;
    fired = false;
    at = nth;
    fault = kind;
    armed = true;
  }
  static void Disarm() { armed = false; }

  /// Calls make(). Its allocations on this thread are not counted.
  template <typename Make>
  static auto Quietly(const Make& make) {
    quiet = true;
    auto made = make();
    quiet = false;
    return made;
  }

  static bool Hits() noexcept {
    if (!armed.load(std::memory_order_relaxed) || quiet) return false;
    const int64_t call = calls.fetch_add(1, std::memory_order_relaxed) + 1;
    if (fault == Fault::kOnce ? call != at : call < at) return false;
    fired = true;
    return true;
  }
};

/// The result of one child process, in memory shared with its parent.
struct ChildReport {
  bool reached;         ///< an allocation failed
  char complaint[480];  ///< empty if there is no error
};

/// The result of one verb's sweep.
struct SweepResult {
  std::string verb;
  uint64_t injected = 0;
  uint64_t bad = 0;
  std::string first_complaint;
};

/// Calls body(fault, n) in a child process. `body` arms Faults around the verb, and returns a
/// complaint or an empty string. `report`, in shared memory, receives the result.
template <typename Body>
void RunChild(const Body& body, Fault fault, int64_t nth, ChildReport* report) {
  *report = {};
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // seconds; ends a verb that waits forever
    std::string complaint;
    try {
      complaint = body(fault, nth);
    } catch (const std::exception& error) {
      Faults::Disarm();
      complaint = std::string("it threw: ") + error.what();
    }
    report->reached = Faults::fired;
    std::snprintf(report->complaint, sizeof(report->complaint), "%s", complaint.c_str());
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  report->reached = true;
  std::snprintf(report->complaint, sizeof(report->complaint),
                WIFSIGNALED(status) ? "ended by signal %d" : "exit status %d",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/// Runs `body` for n = 1, 2 … until no allocation fails. Skips most n: tries every n up to a
/// sixteenth of `dense`, and then n at growing distances. With DE_ALLOC_SWEEP=dense it tries every
/// n up to `dense`, and with DE_ALLOC_SWEEP=full every n. Under a sanitizer a child process takes
/// ten times as long, so n triples from the first number on.
template <typename Body>
SweepResult Sweep(const std::string& verb, int64_t dense, const Body& body) {
  const char* const set = std::getenv("DE_ALLOC_SWEEP");
  const std::string wish = set == nullptr ? "" : set;
  const bool full = wish == "full";
  if (wish.empty()) dense = std::max<int64_t>(dense / 16, 1);
  if (kSanitized) dense = 1;
  const int64_t growth = wish.empty() ? 2 : 1;
  SweepResult result{verb, 0, 0, ""};
  auto* const report = static_cast<ChildReport*>(mmap(
      nullptr, sizeof(ChildReport), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  for (const Fault fault : {Fault::kOnce, Fault::kForGood}) {
    for (int64_t nth = 1;; nth += full ? 1 : 1 + growth * (nth / dense)) {
      RunChild(body, fault, nth, report);
      const bool bad = report->complaint[0] != '\0';
      if (report->reached) ++result.injected;
      if (bad && result.bad++ == 0) {
        result.first_complaint = (fault == Fault::kOnce ? "once, n=" : "for good, n=") +
                                 std::to_string(nth) + ": " + report->complaint;
      }
      if (!report->reached) break;
    }
  }
  munmap(report, sizeof(ChildReport));
  return result;
}

/// Prints one line of results: operation, number of injected failures, number of bad outcomes.
/// Expects no bad outcome.
inline void Report(const SweepResult& result) {
  std::printf("%-44s %8llu injected %6llu bad\n", result.verb.c_str(),
              static_cast<unsigned long long>(result.injected),
              static_cast<unsigned long long>(result.bad));
  EXPECT_EQ(result.bad, 0U) << result.verb << ": " << result.first_complaint;
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_ALLOC_FAILURE_H_
