/// Times one tokenizer on documents in memory, one thread: tokenize_bench KIND DOCUMENTS [REPEATS] prints a line of JSON with wall and
/// processor seconds of the first pass (a fresh encoder, text that it never saw) and of the best further one. DOCUMENTS: each a
/// little-endian u32 of bytes and the bytes; tokenize_bench.py writes it and runs others beside.

#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace
{

double seconds(clockid_t clock)
{
    timespec now{};
    ::clock_gettime(clock, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Pass
{
    double wall = 0.0;
    double cpu = 0.0;
    std::size_t num = 0;
    std::uint64_t sum = 0;
};

Pass run_pass(plimsoll::TokenEncoder& encoder, const std::vector<std::string_view>& documents)
{
    Pass pass;
    std::vector<std::uint32_t> ids;
    const double wall = seconds(CLOCK_MONOTONIC);
    const double cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
    for (const std::string_view document : documents)
    {
        ids.clear();
        encoder.encode(document, ids);
        pass.num += ids.size();
        pass.sum += ids.empty() ? 0 : ids.back();
    }
    pass.cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    pass.wall = seconds(CLOCK_MONOTONIC) - wall;
    return pass;
}

std::vector<std::string_view> cut_documents(const std::string& file)
{
    std::vector<std::string_view> documents;
    for (std::size_t at = 0; at + 4 <= file.size();)
    {
        std::uint32_t bytes = 0;
        std::memcpy(&bytes, file.data() + at, 4);
        documents.emplace_back(file.data() + at + 4, bytes);
        at += 4 + bytes;
    }
    return documents;
}

}  // namespace

int main(int argc, char** argv)
{
    if (argc < 3)
    {
        std::fprintf(stderr, "usage: tokenize_bench KIND DOCUMENTS [REPEATS]\n");
        return 2;
    }
    try
    {
        std::ifstream stream(argv[2], std::ios::binary);
        const std::string file((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
        const std::vector<std::string_view> documents = cut_documents(file);
        std::size_t bytes = 0;
        for (const std::string_view document : documents) { bytes += document.size(); }
        const double load = seconds(CLOCK_MONOTONIC);
        const auto tokenizer = plimsoll::make_tokenizer(argv[1]);
        const double loaded = seconds(CLOCK_MONOTONIC) - load;
        const auto encoder = tokenizer->make_encoder();
        const Pass first = run_pass(*encoder, documents);
        Pass best = first;
        for (int i = 0; i < (argc > 3 ? std::atoi(argv[3]) : 5); ++i)
        {
            const Pass pass = run_pass(*encoder, documents);
            best.wall = std::min(best.wall, pass.wall);
            best.cpu = std::min(best.cpu, pass.cpu);
        }
        rusage usage{};
        ::getrusage(RUSAGE_SELF, &usage);
        const auto& counts = encoder->counts();
        std::printf(
            "{\"bytes\": %zu, \"ids\": %zu, \"sum\": %llu, \"load\": %.4f, \"first_wall\": %.5f, \"first_cpu\": %.5f, "
            "\"best_wall\": %.5f, \"best_cpu\": %.5f, \"hits\": %.4f, \"rss_mb\": %.0f}\n",
            bytes, first.num, static_cast<unsigned long long>(first.sum), loaded, first.wall, first.cpu, best.wall,
            best.cpu,
            counts.cache_lookups > 0
                ? static_cast<double>(counts.cache_hits) / static_cast<double>(counts.cache_lookups)
                : 0.0,
            static_cast<double>(usage.ru_maxrss) / 1024.0);
        return 0;
    }
    catch (const plimsoll::Error& error)
    {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
