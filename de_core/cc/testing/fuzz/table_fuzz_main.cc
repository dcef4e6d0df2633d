// Runs the table's fuzz target without libFuzzer: on the given files, or with `--mutate SECONDS
// [SEED]` on generated inputs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "--mutate";
  if (mode != "--mutate") {
    for (int i = 1; i < argc; ++i) {
      std::ifstream in(argv[i], std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    }
    return 0;
  }
  const double seconds = argc > 2 ? std::atof(argv[2]) : 5;
  std::mt19937_64 random(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  const auto begin = std::chrono::steady_clock::now();
  uint64_t runs = 0;
  for (; std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(seconds);
       ++runs) {
    std::vector<uint8_t> bytes(10 + random() % 190);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%llu tables\n", static_cast<unsigned long long>(runs));
  return 0;
}
