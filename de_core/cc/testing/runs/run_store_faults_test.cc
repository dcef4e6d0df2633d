// The store of runs after crashes, on a full disk, and with corrupt files.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <random>

#include "de_core/cc/testing/runs/run_store_fixture.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine {
namespace {

using namespace testing;  // NOLINT: the fixture

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void WriteAll(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

Rows RowsOf(int64_t begin, int64_t end, float value) {
  Rows rows;
  for (int64_t key = begin; key < end; ++key) rows[key] = value;
  return rows;
}

/// Limits the size of files as long as it exists, as a full disk does.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

const RowLayout& Layout() {
  static const RowLayout layout = LayoutOf(KeyType::kInt64, 16);
  return layout;
}

TEST(RunStoreFaults, AnInterruptedAppendLeavesTheStateBeforeIt) {
  const TempDirectory directory;
  const std::string manifest = directory.path() + "/MANIFEST";
  {
    const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
    ASSERT_TRUE(AppendRows(store.get(), Layout(), RowsOf(0, 100, 1)).ok());
    const std::string before = ReadAll(manifest);
    ASSERT_TRUE(AppendRows(store.get(), Layout(), RowsOf(50, 150, 2)).ok());
    WriteAll(manifest, before);
  }
  std::vector<std::string> runs = directory.Files(".run");
  ASSERT_EQ(runs.size(), 2U);
  std::sort(runs.begin(), runs.end());
  std::filesystem::resize_file(runs[1], 1000);  // the run that the manifest does not name
  WriteAll(directory.path() + "/000000000009.run.tmp", "half a run");
  const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  ExpectRows(*store, Layout(), RowsOf(0, 100, 1), {120, 149});
  EXPECT_EQ(directory.Files(".run").size(), 1U);
  EXPECT_TRUE(directory.Files(".tmp").empty());
  ASSERT_TRUE(AppendRows(store.get(), Layout(), RowsOf(0, 10, 3)).ok());
}

TEST(RunStoreFaults, AKilledProcessLosesNoAppendThatReturned) {
  for (int round = 0; round < 8; ++round) {
    const TempDirectory directory;
    int acks[2];
    ASSERT_EQ(pipe(acks), 0);
    const pid_t child = fork();
    if (child == 0) {
      std::unique_ptr<RunStore> store;
      if (!RunStore::Open(SmallOptions(directory.path()), &store).ok()) _exit(1);
      for (unsigned char step = 1;; ++step) {
        const Rows batch = RowsOf(step % 7 * 20, step % 7 * 20 + 40, step);
        if (!AppendRows(store.get(), Layout(), batch).ok()) _exit(1);
        if (step % 4 == 0 && !store->Compact(step % 8 == 0).ok()) _exit(1);
        if (write(acks[1], &step, 1) != 1 || step == 255) _exit(0);
      }
    }
    close(acks[1]);
    usleep(static_cast<useconds_t>(3000 + round * 7000));
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    unsigned char acked = 0;
    for (unsigned char step; read(acks[0], &step, 1) == 1;) acked = step;
    close(acks[0]);
    // One more append may have finished.
    Rows least, most;
    for (int step = 1; step <= acked + 1; ++step) {
      for (const auto& [key, value] :
           RowsOf(step % 7 * 20, step % 7 * 20 + 40, static_cast<float>(step))) {
        if (step <= acked) least[key] = value;
        most[key] = value;
      }
    }
    const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
    std::vector<int64_t> keys;
    for (const auto& [key, value] : most) keys.push_back(key);
    Rows found;
    ASSERT_TRUE(FindRows(*store, Layout(), keys, &found).ok());
    EXPECT_TRUE(found == least || found == most) << "after step " << int{acked};
  }
}

TEST(RunStoreFaults, AFullDiskChangesNothingAndNamesTheFile) {
  const TempDirectory directory;
  const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  Rows rows = RowsOf(0, 2000, 1);
  ASSERT_TRUE(AppendRows(store.get(), Layout(), rows).ok());
  ASSERT_TRUE(EraseKeys(store.get(), KeyType::kInt64, {3}).ok());
  rows.erase(3);
  for (const rlim_t bytes : {0, 100, 4096, 40'000}) {
    const FullDisk full(bytes);
    for (Status status :
         {AppendRows(store.get(), Layout(), RowsOf(0, 3000, 2)), store->Compact(true)}) {
      EXPECT_EQ(status.code, Code::kResourceExhausted) << status.message;
      EXPECT_NE(status.message.find(directory.path()), std::string::npos) << status.message;
    }
    EXPECT_TRUE(directory.Files(".tmp").empty());
    ExpectRows(*store, Layout(), rows, {3, 2500});
  }
  ASSERT_TRUE(AppendRows(store.get(), Layout(), RowsOf(0, 3000, 2)).ok());
  ASSERT_TRUE(store->Compact(true).ok());
  ExpectRows(*store, Layout(), RowsOf(0, 3000, 2), {5000});
}

TEST(RunStoreFaults, ACorruptBlockIsReportedWithItsFileAndOthersAreServed) {
  const TempDirectory directory;
  std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  const Rows rows = RowsOf(0, 400, 1);
  ASSERT_TRUE(AppendRows(store.get(), Layout(), rows).ok());
  const std::string path = directory.Files(".run")[0];
  const std::string sound = ReadAll(path);
  std::string bytes = sound;
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
  WriteAll(path, bytes);
  int served = 0, refused = 0;
  for (const auto& [key, value] : rows) {
    Rows found;
    const Status status = FindRows(*store, Layout(), {key}, &found);
    if (status.ok()) {
      EXPECT_EQ(found, (Rows{{key, value}}));
      ++served;
    } else {
      EXPECT_EQ(status.code, Code::kDataLoss);
      EXPECT_NE(status.message.find(path), std::string::npos) << status.message;
      ++refused;
    }
  }
  EXPECT_GT(served, 300);
  EXPECT_GT(refused, 0);
  std::map<uint64_t, float> scanned;
  EXPECT_EQ(ScanRows(*store, Layout(), 100, &scanned).code, Code::kDataLoss);
  EXPECT_EQ(store->Compact(true).code, Code::kDataLoss);
  store.reset();
  std::unique_ptr<RunStore> again;
  EXPECT_EQ(RunStore::Open(SmallOptions(directory.path()), &again).code, Code::kDataLoss);
  WriteAll(path, sound);
  ExpectRows(*OpenStore(SmallOptions(directory.path())), Layout(), rows);
}

TEST(RunStoreFaults, ATruncatedOrMissingRunAndACorruptManifestAreReported) {
  const TempDirectory directory;
  std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  ASSERT_TRUE(AppendRows(store.get(), Layout(), RowsOf(0, 400, 1)).ok());
  const std::string path = directory.Files(".run")[0];
  const std::string manifest = directory.path() + "/MANIFEST";
  const std::string sound = ReadAll(path);
  std::filesystem::resize_file(path, 2000);
  Rows found;
  EXPECT_EQ(FindRows(*store, Layout(), {1, 2, 3, 4, 5}, &found).code, Code::kDataLoss);
  store.reset();
  const auto expect_error = [&](const std::string& named) {
    std::unique_ptr<RunStore> opened;
    const Status status = RunStore::Open(SmallOptions(directory.path()), &opened);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message.find(named), std::string::npos) << status.message;
  };
  expect_error(path);
  std::filesystem::remove(path);
  expect_error(path);
  WriteAll(path, sound);
  const std::string list = ReadAll(manifest);
  WriteAll(manifest, list.substr(0, list.size() - 3));
  expect_error(manifest);
  WriteAll(manifest, list);
  ExpectRows(*OpenStore(SmallOptions(directory.path())), Layout(), RowsOf(0, 400, 1));
}

TEST(RunStoreFaults, MutatedFilesNeverCrash) {
  std::mt19937_64 random(5);
  int opened = 0;
  for (const KeyType key_type : {KeyType::kInt64, KeyType::kString}) {
    const TempDirectory directory;
    const RowLayout layout = LayoutOf(key_type, 3);
    {
      const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
      ASSERT_TRUE(AppendRows(store.get(), layout, RowsOf(0, 60, 1)).ok());
      ASSERT_TRUE(EraseKeys(store.get(), key_type, {7, 8, 9}).ok());
    }
    std::vector<std::string> runs = directory.Files(".run");
    const std::string manifest = ReadAll(directory.path() + "/MANIFEST");
    std::vector<std::string> sound;
    for (const std::string& run : runs) sound.push_back(ReadAll(run));
    for (int round = 0; round < 60; ++round) {
      const size_t which = random() % runs.size();
      std::string bytes = sound[which];
      for (uint64_t i = 1 + random() % 3; i > 0; --i) {
        const uint64_t words[] = {0, 1, ~uint64_t{0}, bytes.size(), random()};
        const size_t at = random() % (bytes.size() - 8);
        std::memcpy(&bytes[round % 2 == 0 ? at : at / 4 * 4], &words[random() % 5],
                    1 + random() % 8);
      }
      if (round % 3 != 0) Reseal(&bytes);
      WriteAll(runs[which], bytes);
      std::unique_ptr<RunStore> store;
      const Status status = RunStore::Open(SmallOptions(directory.path()), &store);
      if (status.ok()) {
        ++opened;
        const KeyBatch keys(key_type, {0, 1, 7, 8, 30, 59, 100});
        std::vector<char> rows(7 * layout.stride());
        bool found[7];
        (void)store->Find(keys.keys(), layout, rows.data(), found, nullptr);
        RowBatch batch;
        (void)store->Scan(0, ~uint64_t{0}, 1000, layout, &batch);
        (void)store->Compact(true);
        store.reset();
      } else {
        EXPECT_FALSE(status.message.empty());
      }
      for (const std::string& run : directory.Files(".run")) std::filesystem::remove(run);
      for (size_t i = 0; i < runs.size(); ++i) WriteAll(runs[i], sound[i]);
      WriteAll(directory.path() + "/MANIFEST", manifest);
    }
  }
  EXPECT_GT(opened, 0);
}

}  // namespace
}  // namespace de::engine
