// Keeps objects with large memory for later calls, so that these calls need not allocate it again.
#ifndef DE_CORE_ENGINE_OBJECT_POOL_H_
#define DE_CORE_ENGINE_OBJECT_POOL_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace de::engine {

/// The objects of type T that no call uses. Thread-safe.
template <typename T>
class ObjectPool {
 public:
  struct Returner {
    void operator()(T* object) const noexcept { pool->Give(std::unique_ptr<T>(object)); }
    ObjectPool* pool = nullptr;
  };
  /// A lent object. The destructor returns it to the pool, which must outlive it.
  using Lease = std::unique_ptr<T, Returner>;

  /// Keeps at most `most` objects.
  explicit ObjectPool(size_t most = ~size_t{0}) noexcept : most_(most) {}

  /// Lends an object of the pool, or a new one, made of `arguments`, if the pool has none.
  template <typename... Arguments>
  Lease Lend(const Arguments&... arguments) {
    std::unique_ptr<T> object = Take();
    if (object == nullptr) object = std::make_unique<T>(arguments...);
    return Lease(object.release(), Returner{this});
  }

  /// Removes and returns the object that was given last, or nullptr.
  std::unique_ptr<T> Take() noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (objects_.empty()) return nullptr;
    std::unique_ptr<T> object = std::move(objects_.back());
    objects_.pop_back();
    return object;
  }

  /// Adds an object. Frees it if the pool is full, or if there is no memory to list it.
  void Give(std::unique_ptr<T> object) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (objects_.size() >= most_) return;
    try {
      objects_.push_back(std::move(object));
    } catch (const std::bad_alloc&) {  // `object` still has it
    }
  }

 private:
  const size_t most_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> objects_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_OBJECT_POOL_H_
