// Runs a fuzz target without libFuzzer: on the given files, or with `--mutate SECONDS [SEED]` on
// made-up inputs. The seconds are CPU time, so that a busy machine tests as many inputs.
#ifndef DE_CORE_TESTING_FUZZ_MAIN_H_
#define DE_CORE_TESTING_FUZZ_MAIN_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace de::engine::testing {

/// `make(random, number)` returns an input.
template <typename Make>
int FuzzMain(int argc, char** argv, const Make& make) {
  const auto run = [](const std::string& bytes) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  const std::string mode = argc > 1 ? argv[1] : "--mutate";
  if (mode != "--mutate") {
    for (int i = 1; i < argc; ++i) {
      std::ifstream in(argv[i], std::ios::binary);
      run({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()});
    }
    return 0;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  std::mt19937_64 random(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  size_t runs = 0;
  while (static_cast<double>(std::clock()) < seconds * CLOCKS_PER_SEC) {
    run(make(&random, runs++));
  }
  std::printf("%zu inputs\n", runs);
  return 0;
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_FUZZ_MAIN_H_
