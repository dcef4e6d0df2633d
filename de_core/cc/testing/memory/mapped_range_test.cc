// A mapped file that is cut short: its pages read as zeros, and its range knows.
#include "de_core/cc/engine/memory/mapped_range.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace de::engine {
namespace {

const size_t kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
constexpr size_t kPages = 8;

/// A file of kPages pages of ones, mapped.
class MappedFile {
 public:
  MappedFile() {
    std::string path = ::testing::TempDir() + "mapped_range_XXXXXX";
    file_ = ::mkstemp(path.data());
    EXPECT_GE(file_, 0);
    (void)::unlink(path.c_str());
    Write(1);
    void* const mapped = ::mmap(nullptr, kPages * kPage, PROT_READ, MAP_SHARED, file_, 0);
    EXPECT_NE(mapped, MAP_FAILED);
    data_ = static_cast<const char*>(mapped);
  }
  ~MappedFile() {
    (void)::munmap(const_cast<char*>(data_), kPages * kPage);
    (void)::close(file_);
  }
  void Write(char byte) {
    const std::string bytes(kPages * kPage, byte);
    EXPECT_EQ(::pwrite(file_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  void CutTo(size_t bytes) { EXPECT_EQ(::ftruncate(file_, static_cast<off_t>(bytes)), 0); }
  const char* data() const { return data_; }
  // ThreadSanitizer would take the mmap of a page of zeros for a write that races with this read.
  __attribute__((no_sanitize("thread"))) char At(size_t page) const {
    return *const_cast<const volatile char*>(data_ + page * kPage);
  }
  std::unique_ptr<MappedRange> Watched() const {
    std::unique_ptr<MappedRange> range;
    EXPECT_TRUE(MappedRange::Watch(data_, kPages * kPage, &range).ok());
    return range;
  }

 private:
  int file_ = -1;
  const char* data_ = nullptr;
};

sigjmp_buf past_the_fault;
const void* foreign_fault = nullptr;

void JumpPast(int, siginfo_t* info, void*) {
  foreign_fault = info->si_addr;
  ::siglongjmp(past_the_fault, 1);
}

/// Installed before the first range is watched.
const bool kHasForeignHandler = [] {
  struct sigaction action{};
  action.sa_sigaction = JumpPast;
  action.sa_flags = SA_SIGINFO;
  return ::sigaction(SIGBUS, &action, nullptr) == 0;
}();

TEST(MappedRange, lost_pages_read_as_zeros_and_the_range_knows) {
  MappedFile file, other;
  const auto range = file.Watched(), other_range = other.Watched();
  EXPECT_EQ(file.At(kPages - 1), 1);
  EXPECT_TRUE(range->intact());
  file.CutTo(2 * kPage);
  EXPECT_EQ(file.At(5), 0);
  EXPECT_FALSE(range->intact());
  EXPECT_EQ(file.At(3), 0);
  EXPECT_EQ(file.At(1), 1);
  EXPECT_FALSE(range->intact());
  EXPECT_EQ(other.At(5), 1);
  EXPECT_TRUE(other_range->intact());
}

TEST(MappedRange, knows_of_lost_pages_that_nobody_has_read) {
  MappedFile file;
  const auto range = file.Watched();
  file.CutTo(2 * kPage);
  EXPECT_EQ(file.At(0), 1);
  EXPECT_FALSE(range->intact());
}

TEST(MappedRange, knows_of_a_lost_page_of_zeros_by_the_signal) {
  MappedFile file;
  file.Write(0);
  const auto range = file.Watched();
  file.CutTo(2 * kPage);
  EXPECT_EQ(file.At(5), 0);
  EXPECT_FALSE(range->intact());
}

TEST(MappedRange, knows_of_a_file_that_is_cut_within_its_last_page) {
  MappedFile file;
  const auto range = file.Watched();
  file.CutTo(kPages * kPage - 1);  // raises no signal
  EXPECT_FALSE(range->intact());
}

TEST(MappedRange, a_file_that_is_written_again_after_a_lost_page_stays_lost) {
  MappedFile file;
  const auto range = file.Watched();
  file.CutTo(0);
  EXPECT_EQ(file.At(0), 0);
  file.Write(1);
  EXPECT_FALSE(range->intact());
}

TEST(MappedRange, a_fault_elsewhere_goes_to_the_handler_that_was_there_before) {
  ASSERT_TRUE(kHasForeignHandler);
  MappedFile watched, foreign;
  const auto range = watched.Watched();
  foreign.Watched().reset();  // no longer watched, like a file that was never watched
  foreign.CutTo(0);
  if (::sigsetjmp(past_the_fault, 1) == 0) {
    (void)foreign.At(3);
    FAIL() << "a lost page of a file that is not watched was read";
  }
  EXPECT_EQ(foreign_fault, foreign.data() + 3 * kPage);
  foreign_fault = nullptr;
  watched.CutTo(0);
  EXPECT_EQ(watched.At(3), 0);
  EXPECT_EQ(foreign_fault, nullptr);
  EXPECT_FALSE(range->intact());
  EXPECT_TRUE(MappedFile().Watched()->intact());  // a used slot of the registry is cleared
}

TEST(MappedRange, many_threads_read_while_a_file_is_cut) {
  MappedFile file;
  const auto range = file.Watched();
  std::atomic<bool> is_cut{false};
  std::atomic<int> wrong{0}, refused{0};
  std::vector<std::thread> readers;
  for (size_t reader = 0; reader < 4; ++reader) {
    readers.emplace_back([&, reader] {
      for (size_t i = reader;; ++i) {
        const bool after = is_cut;
        const char byte = file.At(i % kPages);
        const bool intact = range->intact();
        // Other ranges come and go meanwhile.
        std::unique_ptr<MappedRange> passing;
        if (!MappedRange::Watch(file.data(), 0, &passing).ok()) ++wrong;
        if (intact && (byte != 1 || after)) ++wrong;
        if (!intact) {
          ++refused;
          return;
        }
      }
    });
  }
  file.CutTo(kPage);
  is_cut = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(refused, 4);
}

}  // namespace
}  // namespace de::engine
