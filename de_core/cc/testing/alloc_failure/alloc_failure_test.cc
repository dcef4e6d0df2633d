// Verbs of a table while memory runs out: lets every allocation fail.
#include <utility>

#include "de_core/cc/engine/batch/pooling.h"
#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/policy/row_rank.h"
#include "de_core/cc/engine/table/table_find.h"
#include "de_core/cc/testing/alloc_failure/alloc_failure_world.h"

namespace de::engine::testing {
namespace {

constexpr WorldKind kWithPolicy{
    "with a policy", KeyType::kInt64, DType::kFloat32, 8,
    "time=1;uses=1;score=1;ttl_steps=1000000;evict_by=3;max_rows=1000000;admission=2;min_count=1;"
    "capacity=100000;error_bits=4576918229304087675"};

const std::vector<double> kHyper = {-1, 0, 0};  // for the rule "momentum"

class AllocFailure : public ::testing::TestWithParam<WorldKind> {
 protected:
  bool floats() const { return GetParam().value_dtype == DType::kFloat32; }
  void Sweep(const Verb& verb) { SweepVerb(GetParam(), verb); }
};

INSTANTIATE_TEST_SUITE_P(Kinds, AllocFailure, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return "Kind" + std::to_string(info.index); });
INSTANTIATE_TEST_SUITE_P(WithPolicy, AllocFailure, ::testing::Values(kWithPolicy));

constexpr Allowed kAsBefore{};
/// States after a write that stopped early: each row of the batch was written or not.
constexpr Allowed kPartWritten{k0, k0 | k1, kAbsent | k1};
constexpr Allowed kWritten{k0, k1, k1};
constexpr Allowed kPartAdded{k0, k0 | k1, kAbsent | k0 | k1};
constexpr Allowed kAdded{k0, k1 | k2, k1 | k2};
/// States after an erasure that stopped early: any row may be gone.
constexpr Allowed kPartGone{k0 | kAbsent, k0 | kAbsent, kAbsent};

/// Output for a verb that reads the batch.
World::Output OutputOf(const World& world) {
  return Faults::Quietly([&] { return World::Output(&world, world.batch().size); });
}

template <typename T>
std::vector<T> Filled(size_t size, T value) {
  return Faults::Quietly([&] { return std::vector<T>(size, value); });
}

/// Runs one step of the optimizer `owner`. It adds world.added() once to the row of each key of the
/// batch.
Status Step(World& world, const char* owner, Executor* executor, const double* average = nullptr) {
  return world.table->Apply(*FindRule("momentum"), owner, kHyper, world.batch(), world.added(),
                            executor, average);
}

TEST_P(AllocFailure, reads) {
  Sweep({"find", [](World& world, Executor* executor) {
           World::Output out = OutputOf(world);
           return world.table->Find(world.batch(), out.values(), out.found(), executor);
         }});
  Sweep({"contains", [](World& world, Executor* executor) {
           const World::Output out = OutputOf(world);
           return world.table->Find(world.batch(), {}, out.found(), executor);
         }});
  Sweep({"export", [](World& world, Executor*) {
           RowBatch rows = Faults::Quietly([] { return RowBatch(); });
           for (ExportCursor cursor; !cursor.done;) {
             DE_RETURN_IF_ERROR(world.table->ExportBatch(&cursor, &rows));
           }
           return Status::Ok();
         }});
}

TEST_P(AllocFailure, writes) {
  Sweep({"insert_or_assign",
         [](World& world, Executor* executor) {
           return world.table->InsertOrAssign(world.batch(), world.written(), executor);
         },
         kPartWritten, kWritten});
  Sweep({"find_or_insert",
         [](World& world, Executor* executor) {
           World::Output out = OutputOf(world);
           return world.table->FindOrInsert(world.batch(), out.values(), out.found(), executor);
         },
         {k0, k0, kAbsent | k0},
         {k0, k0, k0}});
  if (!floats()) return;
  Sweep({"accum_or_assign",
         [](World& world, Executor* executor) {
           return world.table->AccumOrAssign(world.batch(), world.added(), nullptr, executor);
         },
         kPartAdded, kAdded});
}

TEST_P(AllocFailure, optimizers) {
  if (!floats()) return;
  Sweep({"apply, the first of an optimizer",
         [](World& world, Executor* executor) { return Step(world, "new", executor); }, kPartAdded,
         kAdded});
  Sweep({"apply", [](World& world, Executor* executor) { return Step(world, "before", executor); },
         kPartAdded, kAdded});
  LeastKeysToRecord() = 1;
  const auto train = [](World& world, Executor* executor) -> Status {
    World::Output out = OutputOf(world);
    DE_RETURN_IF_ERROR(
        world.table->FindToTrain(world.batch(), out.values(), out.found(), executor));
    return Step(world, "before", executor);
  };
  // From the second step on, a lookup records where it found its keys, and the update uses that.
  Sweep({"find_to_train and apply",
         train,
         {k0, k1 | k2, k1 | k2},
         {k0, k2 | k3, k2 | k3},
         [](World& world) { ASSERT_TRUE(Step(world, "before", nullptr).ok()); }});
  Sweep({"apply with averages",
         [](World& world, Executor* executor) {
           const double momentum = 0.5;
           return Step(world, "before", executor, &momentum);
         },
         kPartAdded, kAdded});
}

TEST_P(AllocFailure, removals) {
  Sweep(
      {"erase",
       [](World& world, Executor* executor) { return world.table->Erase(world.batch(), executor); },
       {k0, k0 | kAbsent, kAbsent},
       {k0, kAbsent, kAbsent}});
  Sweep({"erase_if",
         [](World& world, Executor*) {
           uint64_t erased = 0;
           return world.table->EraseIf([](uint64_t word, const char*) { return word % 2 == 0; },
                                       &erased);
         },
         kPartGone, kPartGone});
  Sweep({"clear",
         [](World& world, Executor*) { return world.table->Clear(); },
         kPartGone,
         {kAbsent, kAbsent, kAbsent}});
}

TEST_P(AllocFailure, room) {
  Sweep({"reserve", [](World& world, Executor*) { return world.table->Reserve(100000); }});
  Sweep({"shrink_to_fit", [](World& world, Executor*) { return world.table->ShrinkToFit(); },
         kAsBefore, kAsBefore,
         [](World& world) { ASSERT_TRUE(world.table->Reserve(20000).ok()); }});
}

TEST_P(AllocFailure, slots) {
  const std::vector<SlotSpec> specs = {{"m", DType::kFloat32, GetParam().dim, 0.5},
                                       {"v", DType::kFloat32, 1, 0.25}};
  Sweep(
      {"ensure_slots",
       [&](World& world, Executor*) { return world.table->EnsureSlots("adam", specs); },
       kAsBefore,
       kAsBefore,
       {},
       [](const World& world, int) -> std::string {
         const size_t keys = world.old();
         std::vector<float> slots(keys * world.dim());
         char* const out = reinterpret_cast<char*>(slots.data());
         if (!world.table->FindSlot("adam", "m", 4 * world.dim(), world.Some(0, keys), out, nullptr)
                  .ok()) {
           return "no slot";
         }
         for (const float slot : slots) {
           if (slot != 0.5F) return "a new slot is " + std::to_string(slot);
         }
         return "";
       }});
  if (!floats()) return;
  Sweep({"drop_slots", [](World& world, Executor*) { return world.table->DropSlots("before"); }});
  const auto read = [](World& world, Executor*) {
    std::vector<float> slots = Filled(world.batch().size * world.dim(), 0.0F);
    return world.table->FindSlot("behind", "momentum", 4 * world.dim(), world.batch(),
                                 reinterpret_cast<char*>(slots.data()), nullptr);
  };
  Sweep({"find_slot", read});
  Sweep({"assign_slot", [](World& world, Executor*) {
           return world.table->AssignSlot("behind", "momentum", 4 * world.dim(), world.batch(),
                                          reinterpret_cast<const char*>(world.added()));
         }});
  Sweep({"take_averages",
         [](World& world, Executor*) { return world.table->TakeAverages("before"); }});
}

TEST_P(AllocFailure, policies) {
  Sweep({"touch",
         [](World& world, Executor*) -> Status { return world.table->Touch(world.batch()); }});
  if (GetParam().policy[0] == '\0') return;
  Sweep({"restrict",
         [](World& world, Executor*) -> Status {
           std::vector<RowRank> rows;
           const Candidates wanted(world.old(), world.old() / 2);
           DE_RETURN_IF_ERROR(world.table->RankCandidates(RowColumn::kUses, wanted, &rows));
           uint64_t evicted = 0;
           world.table->evicted_keys().Take(10);
           const Status status = world.table->EvictBelow(
               RowColumn::kUses, FirstKept(wanted, std::move(rows), false), &evicted);
           const auto taken = world.table->evicted_keys().Take(0);
           EXPECT_EQ(taken.size() + taken.lost, world.old() - world.table->size());
           return status;
         },
         kPartGone, kPartGone});
  Sweep({"evict_expired", [](World& world, Executor*) {
           uint64_t evicted = 0;
           return world.table->EvictExpired(&evicted);
         }});
}

TEST_P(AllocFailure, pooled_gradients) {
  if (!floats()) return;
  Sweep({"pooled gradient", [](World& world, Executor* executor) -> Status {
           const Keys keys = world.batch();
           const std::vector<float> gradient = Filled(world.dim(), 1.0F);
           const auto* const same = static_cast<const void*>(gradient.data());
           const std::vector<const void*> gradients = Filled(keys.size, same);
           auto pooled = Faults::Quietly([] { return std::make_unique<PooledGradient>(); });
           DE_RETURN_IF_ERROR(pooled->Build(keys, executor));
           std::vector<float> sums = Filled(pooled->size() * world.dim(), 0.0F);
           return pooled->Sum(DType::kFloat32, nullptr, gradients.data(), world.dim(), sums.data(),
                              executor);
         }});
}

}  // namespace
}  // namespace de::engine::testing
