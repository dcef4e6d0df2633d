#include "de_core/cc/kernels/table/live_tables.h"

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "de_core/cc/kernels/files/snapshot_json.h"
#include "tensorflow/core/platform/refcount.h"

namespace de::kernels {
namespace {

using Known = std::pair<std::string, tensorflow::core::WeakPtr<TableResource>>;
using Held = std::pair<std::string, tensorflow::core::RefCountPtr<TableResource>>;

struct Registry {
  std::mutex mutex;
  std::vector<Known> tables;

  /// Returns the tables that still exist, and forgets the others.
  std::vector<Held> Living() {
    const std::lock_guard<std::mutex> guard(mutex);
    std::vector<Held> living;
    for (const Known& each : tables) {
      auto held = each.second.GetNewRef();
      if (held != nullptr) living.emplace_back(each.first, std::move(held));
    }
    // Nothing throws from here on. An exception in between would leave names that were moved away.
    const auto gone = [](const Known& each) { return each.second.GetNewRef() == nullptr; };
    tables.erase(std::remove_if(tables.begin(), tables.end(), gone), tables.end());
    return living;
  }
};

/// Never destroyed: tables may outlive static objects.
Registry& TheRegistry() {
  static auto* const registry = new Registry;
  return *registry;
}

}  // namespace

void NoteLiveTable(const std::string& name, TableResource* table) {
  Registry& registry = TheRegistry();
  registry.Living();  // otherwise freed tables would accumulate
  const std::lock_guard<std::mutex> guard(registry.mutex);
  registry.tables.emplace_back(name, tensorflow::core::WeakPtr<TableResource>(table));
}

std::string LiveTablesJson() {
  std::vector<std::string> found;
  for (const Held& each : TheRegistry().Living()) {
    std::string stats;
    if (!each.second->StatsJson(&stats).ok()) continue;  // closed meanwhile
    found.push_back(
        absl::StrCat("{\"table\": ", JsonText(each.first), ", \"stats\": ", stats, "}"));
  }
  return absl::StrCat("[", absl::StrJoin(found, ", "), "]");
}

}  // namespace de::kernels
