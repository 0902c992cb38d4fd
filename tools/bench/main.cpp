// plimsoll-bench: what links can do.

#include "all_reduce.hpp"

int main(int argc, char** argv)
{
    plimsoll::AllReduceOptions all_reduce;
    plimsoll::ToolSpec tool;
    tool.name = "plimsoll-bench";
    tool.summary = "measures the links between ranks, and that sums over them are exact (docs/bench.md)";
    tool.commands = {plimsoll::all_reduce_command(all_reduce)};
    return plimsoll::run_tool(argc, argv, tool);
}
