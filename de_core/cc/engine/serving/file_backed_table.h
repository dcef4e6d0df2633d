// A table whose rows are in a mapped file until the first write. Reads are answered from the file.
// The first write loads the file's rows into the table, while reads continue.
#ifndef DE_CORE_ENGINE_FILE_BACKED_TABLE_H_
#define DE_CORE_ENGINE_FILE_BACKED_TABLE_H_

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace de::engine {

/// Thread-safe. A default-constructed Outcome must be ok().
template <typename Table, typename File, typename Outcome>
class FileBackedTable {
 public:
  /// Replaces the table's rows by the file's rows, or changes nothing.
  using Load = std::function<Outcome(Table*)>;

  /// The object that answers a read: the file if there is one, otherwise the table. Both are
  /// nullptr after Close.
  struct Reader {
    std::shared_ptr<const File> file;
    std::shared_ptr<Table> table;
  };

  explicit FileBackedTable(std::shared_ptr<Table> table) : table_(std::move(table)) {}

  /// Releases the file and the table. Each is freed when its last user finishes.
  void Close() {
    Reader closed;  // freed after the lock is released
    Load load;
    const std::lock_guard<std::mutex> guard(mutex_);
    closed.table.swap(table_);
    closed.file.swap(file_);
    load.swap(load_);
  }

  /// From now on `file` answers reads, instead of an earlier file. `load` loads its rows into the
  /// table at the first write. Does nothing if this object is closed.
  void Begin(std::shared_ptr<const File> file, Load load) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (table_ == nullptr) return;
    file_.swap(file);  // the old file is freed after the lock is released, like the old load
    load_.swap(load);
  }

  Reader ForReading() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return file_ != nullptr ? Reader{file_, nullptr} : Reader{nullptr, table_};
  }

  /// Returns the table with all rows loaded, or nullptr if closed. If loading fails, the file
  /// continues to answer reads, and the next call tries again.
  Outcome ForWriting(std::shared_ptr<Table>* table) {
    Reader loaded;  // freed after the locks are released
    std::unique_lock<std::mutex> loading(load_mutex_, std::defer_lock);
    std::unique_lock<std::mutex> guard(mutex_);
    while (load_ != nullptr) {
      if (!loading.owns_lock()) {
        // If another thread is loading, wait until it has loaded all rows. Otherwise its loading
        // would overwrite this writer's rows.
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
      if (file_ == loaded.file) {  // otherwise Begin or Close was called while the rows were loaded
        file_.reset();
        load_ = nullptr;
      }
    }
    *table = table_;
    return Outcome();
  }

 private:
  std::mutex load_mutex_;     // held while rows are loaded; reads continue
  mutable std::mutex mutex_;  // guards the members below
  std::shared_ptr<Table> table_;
  std::shared_ptr<const File> file_;
  Load load_;  // loads file_ into table_; empty if there is nothing to load
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FILE_BACKED_TABLE_H_
