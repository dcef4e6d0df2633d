// Lists the live tables of this process, for the statistics of a parameter server. The list does
// not depend on the session, function or cluster that created a table.
#ifndef DE_CORE_KERNELS_LIVE_TABLES_H_
#define DE_CORE_KERNELS_LIVE_TABLES_H_

#include <string>

#include "de_core/cc/kernels/table/table_resource.h"

namespace de::kernels {

/// Adds a table to the list. The list does not keep the table alive.
void NoteLiveTable(const std::string& name, TableResource* table);

/// Returns a JSON array. Each element has the fields `table` (the name) and `stats` (the output of
/// DeTableStats).
std::string LiveTablesJson();

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_LIVE_TABLES_H_
