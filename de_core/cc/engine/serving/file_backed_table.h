// A table that a file stands in for: reads are answered by the file, which is mapped in a moment,
// until somebody asks for the table itself, to write to it. Then the file's rows are brought into
// the table, once, while reads go on.
#ifndef DE_CORE_ENGINE_FILE_BACKED_TABLE_H_
#define DE_CORE_ENGINE_FILE_BACKED_TABLE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace de::engine {

/// For any number of threads. `Outcome` has `ok()`, and is so when made of nothing.
template <typename Table, typename File, typename Outcome>
class FileBackedTable {
 public:
  /// Brings the file's rows into the table, in place of its own, or changes nothing.
  using Load = std::function<Outcome(Table*)>;

  /// What answers a read: the file if there is one, else the table, else it is closed.
  struct Reader {
    std::shared_ptr<const File> file;
    std::shared_ptr<Table> table;
  };

  explicit FileBackedTable(std::shared_ptr<Table> table) : table_(std::move(table)) {}

  /// Lets go of both. They are freed when the last who uses them ends.
  void Close() {
    Reader closed;  // freed after the lock is given up
    Load load;
    const std::lock_guard<std::mutex> guard(mutex_);
    closed.table.swap(table_);
    closed.file.swap(file_);
    load.swap(load_);
  }

  /// From now on `file` stands in for the table, in place of what did. Nothing if it is closed.
  void Begin(std::shared_ptr<const File> file, Load load) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (table_ == nullptr) return;
    file_.swap(file);  // the old one is freed after the lock is given up, as the old load
    load_.swap(load);
  }

  Reader ForReading() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return file_ != nullptr ? Reader{file_, nullptr} : Reader{nullptr, table_};
  }

  /// The table with all rows in it, or nullptr if it is closed. After a failed load the file still
  /// stands in, and the next call tries again.
  Outcome ForWriting(std::shared_ptr<Table>* table) {
    Reader loaded;  // freed after the locks are given up
    std::unique_lock<std::mutex> loading(load_mutex_, std::defer_lock);
    std::unique_lock<std::mutex> guard(mutex_);
    while (load_ != nullptr) {
      if (!loading.owns_lock()) {
        // Whoever comes second waits until the rows are there, or would write beneath them.
        guard.unlock();
        loading.lock();
        guard.lock();
        continue;
      }
      loaded = {file_, table_};
      const Load load = load_;
      guard.unlock();
      Outcome outcome = load(loaded.table.get());
      if (!outcome.ok()) return outcome;
      guard.lock();
      if (file_ == loaded.file) {  // else another file stands in by now, or it was closed
        file_.reset();
        load_ = nullptr;
      }
    }
    *table = table_;
    return Outcome();
  }

 private:
  std::mutex load_mutex_;     // held while the rows are brought in; reads go on
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<Table> table_;
  std::shared_ptr<const File> file_;
  Load load_;  // of the file
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FILE_BACKED_TABLE_H_
