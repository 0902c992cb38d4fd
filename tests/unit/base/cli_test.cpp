#include "base/cli.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

namespace
{

using Words = std::vector<std::string>;

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// A small schema with one option of each kind.
struct Fixture
{
    std::int64_t tp = 1;
    std::int64_t batch = 4;
    std::int64_t limit = 0;
    double lr = 0.1;
    double watchdog = 300;
    bool usr1 = false;
    bool dry_run = false;
    Span every;
    std::string name = "run";
    std::string device = "cpu";
    std::string dir;
    Words shards;
    Words tags;
    std::map<std::string, double> weights;
    OptionSet options;

    Fixture()
    {
        options.add_flag("", "dry-run", dry_run, "checks and ends");
        options.add_text("run", "name", name, "name of the run");
        options.add_path("run", "dir", dir, "directory");
        options.add_choice("run", "device", device, {"cpu", "cuda"}, "where").flag("device");
        options.add_flag("run", "signal-usr1", usr1, "USR1 too").flag("signal-usr1");
        options.add_duration("run", "watchdog", watchdog, "patience").range(1, 1000);
        options.add_texts("run", "tags", tags, "words");
        options.add_count("layout", "tp", tp, "tensor parallel degree")
            .flag("tp")
            .range(1, 8)
            .peers({"tensor-model-parallel-size"});
        options.add_count("layout", "micro-batch", batch, "batch")
            .flag("micro-batch")
            .built_only({"4", "8"}, "be patient");
        options.add_bytes("layout", "limit", limit, "of a rank").flag("memory-limit");
        options.add_number("train", "lr", lr, "peak learning rate (nats)").flag("lr");
        options.add_span("train", "every", every, "distance");
        options.add_paths("data", "shards", shards, "files");
        options.add_named_sections("data", [this](OptionSet& set, const std::string& source)
                                   { set.add_number("data." + source, "weight", weights[source], "share"); });
        options.add_peer_hint("bf16", "--precision bf16");
    }

    Words parse(const Words& arguments) { return options.parse(arguments); }
};

class Environment
{
  public:
    Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
    ~Environment() { ::unsetenv(name_); }

  private:
    const char* name_;
};

void expect_usage_error(const Words& arguments, const std::string& text)
{
    Fixture f;
    expect_error<UsageError>([&] { f.parse(arguments); }, text);
}

void expect_config_error(const Words& arguments, const std::string& text)
{
    Fixture f;
    expect_error<ConfigError>([&] { f.parse(arguments); }, text);
}

}  // namespace

TEST(Cli, NothingGivenLeavesTheDefaults)
{
    Fixture f;
    EXPECT_TRUE(f.parse({}).empty());
    EXPECT_EQ(f.tp, 1);
    EXPECT_FALSE(f.options.is_set("layout.tp"));
    EXPECT_EQ(f.options.at("tp").origin().where, "default");
}

TEST(Cli, EveryKindIsRead)
{
    Fixture f;
    const Words rest = f.parse({"--tp=2", "in", "--lr", "-1e-3", "--layout.limit", "80GiB", "--dry-run",
                                "--no-signal-usr1", "--train.every", "2%", "--run.tags", "a", "b", "--run.watchdog",
                                "2min", "--device", "cuda", "--run.name", "x y"});
    EXPECT_EQ(rest, Words{"in"});
    EXPECT_EQ(f.tp, 2);
    EXPECT_EQ(f.lr, -1e-3);
    EXPECT_EQ(f.limit, 85899345920);
    EXPECT_TRUE(f.dry_run);
    EXPECT_FALSE(f.usr1);
    EXPECT_EQ(f.every.unit, Span::Unit::percent);
    EXPECT_EQ(f.tags, (Words{"a", "b"}));
    EXPECT_EQ(f.watchdog, 120);
    EXPECT_EQ(f.device, "cuda");
    EXPECT_EQ(f.name, "x y");
    EXPECT_EQ(f.options.at("layout.tp").origin().where, "--tp");
}

TEST(Cli, FlagsTakeNoWord)
{
    Fixture f;
    EXPECT_EQ(f.parse({"--dry-run", "DIR", "--signal-usr1=true"}), Words{"DIR"});
    EXPECT_TRUE(f.dry_run);
    EXPECT_TRUE(f.usr1);
}

TEST(Cli, TheNearerSourceWins)
{
    const TempDir dir;
    write(dir / "a.ini", "[layout]\ntp = 3\n[train]\nlr = 0.5\n[run]\nname = file\n");
    write(dir / "b.ini", "[train]\nlr = 0.25\n");
    const Environment tp("PLIMSOLL_LAYOUT_TP", "4");
    const Environment name("PLIMSOLL_RUN_NAME", "environment");
    Fixture f;
    f.parse({"--config", dir / "a.ini", "--tp", "5", "--config", dir / "b.ini"});
    EXPECT_EQ(f.tp, 5);
    EXPECT_EQ(f.name, "environment");
    EXPECT_EQ(f.lr, 0.25) << "the later file wins";
    EXPECT_EQ(f.options.at("layout.tp").origin().where, "--tp");
    EXPECT_EQ(f.options.at("run.name").origin().where, "PLIMSOLL_RUN_NAME");
    EXPECT_EQ(f.options.at("train.lr").origin().where, (dir / "b.ini") + ":2");
    EXPECT_EQ(f.options.run_files(), (Words{dir / "a.ini", dir / "b.ini"}));
}

TEST(Cli, ListsReplaceAndRepeatedListOptionsAdd)
{
    const TempDir dir;
    write(dir / "a.ini", "[run]\ntags = a b\n");
    Fixture from_file;
    from_file.parse({"--config", dir / "a.ini"});
    EXPECT_EQ(from_file.tags, (Words{"a", "b"}));
    Fixture f;
    f.parse({"--config", dir / "a.ini", "--run.tags", "c", "--run.tags", "d e"});
    EXPECT_EQ(f.tags, (Words{"c", "d e"}));
}

TEST(Cli, PathsAreRelativeToWhoNamesThem)
{
    const TempDir dir;
    std::filesystem::create_directory(dir / "sub");
    for (const char* name : {"sub/b.h5", "sub/a.h5", "sub/c.txt"}) { write(dir / name, ""); }
    write(dir / "sub/a.ini", "[run]\ndir = ../out/\n[data]\nshards = *.h5 ./c.txt a.h5\n");
    Fixture f;
    f.parse({"--config", dir / "sub/a.ini"});
    EXPECT_EQ(f.dir, dir / "out");
    EXPECT_EQ(f.shards, (Words{dir / "sub/a.h5", dir / "sub/b.h5", dir / "sub/c.txt"})) << "sorted, each once";
    Fixture here;
    here.parse({"--run.dir", "x"});
    EXPECT_EQ(here.dir, (std::filesystem::current_path() / "x").string());
}

TEST(Cli, AGlobInAFolderWithWildcardsInItsNameMatches)
{
    const TempDir dir;
    std::filesystem::create_directory(dir / "a[1]*");
    write(dir / "a[1]*/x.h5", "");
    write(dir / "a[1]*/a.ini", "[data]\nshards = *.h5\n");
    Fixture f;
    f.parse({"--config", dir / "a[1]*/a.ini"});
    EXPECT_EQ(f.shards, Words{dir / "a[1]*/x.h5"});
}

TEST(Cli, AGlobInAMissingFolderMatchesNothing)
{
    expect_config_error({"--data.shards", "/nowhere/x/*.h5"}, "--data.shards: no file matches '/nowhere/x/*.h5'");
}

TEST(Cli, AGlobWithoutMatchIsAnErrorWhereTheValueIsUsed)
{
    const TempDir dir;
    write(dir / "a.ini", "[data]\nshards = *.h5\n");
    expect_config_error({"--config", dir / "a.ini"},
                        (dir / "a.ini") + ":2: shards: no file matches '" + (dir / "*.h5") + "'");
    Fixture unused;
    unused.options.use_sections({"run"});
    unused.parse({"--config", dir / "a.ini"});
    EXPECT_EQ(unused.shards, Words{dir / "*.h5"});
}

TEST(Cli, NamedSectionsAppearWhenMentioned)
{
    const TempDir dir;
    write(dir / "a.ini", "[data.kjv]\nweight = 0.5\n");
    const Environment weight("PLIMSOLL_DATA_KJV_WEIGHT", "0.75");
    Fixture f;
    f.parse({"--config", dir / "a.ini", "--data.web.weight", "2"});
    EXPECT_EQ(f.weights, (std::map<std::string, double>{{"kjv", 0.75}, {"web", 2}}));
    const std::string snapshot = f.options.snapshot();
    EXPECT_NE(snapshot.find("[data.web]\nweight = 2\n\n[data.kjv]\nweight = 0.75\n"), std::string::npos) << snapshot;
}

TEST(Cli, UnknownOptionsNameTheNearest)
{
    expect_usage_error({"--micro-bacth", "4"}, "unknown option '--micro-bacth'. nearest: --micro-batch");
    expect_usage_error({"--layout.pt", "4"}, "unknown option '--layout.pt'. nearest: --layout.tp");
    expect_usage_error({"--dryrun"}, "unknown option '--dryrun'. nearest: --dry-run");
    expect_usage_error({"-tp", "4"}, "unknown option '-tp' (options start with two dashes). write --tp");
    expect_usage_error({"-h1"}, "unknown option '--h1'. see --help");
    expect_usage_error({"--qqqqqqqqqqqqqqqq=4"}, "unknown option '--qqqqqqqqqqqqqqqq'. see --help");
    expect_usage_error({"--shards", "x"},
                       "unknown option '--shards' (a key of a section, without a short name). write --data.shards");
}

TEST(Cli, OtherToolkitsWordsAreAnsweredWithOurs)
{
    expect_usage_error({"--tensor-model-parallel-size", "4"},
                       "unknown option '--tensor-model-parallel-size' (another toolkit's name). use --tp");
    expect_usage_error({"--tensor_model_parallel_size=4"},
                       "unknown option '--tensor_model_parallel_size' (another toolkit's name). use --tp");
    expect_usage_error({"--bf16"}, "unknown option '--bf16' (another toolkit's name). use --precision bf16");
    const TempDir dir;
    write(dir / "a.ini", "[train]\ntensor_model_parallel_size = 4\n");
    expect_config_error({"--config", dir / "a.ini"},
                        (dir / "a.ini") + ":2: unknown key 'tensor_model_parallel_size' in [train] (another toolkit's "
                                          "name). use 'tp' in [layout]");
}

TEST(Cli, UnknownSectionsAndKeysNameTheNearest)
{
    const TempDir dir;
    const std::string file = dir / "a.ini";
    const auto expect = [&](const std::string& text, const std::string& message)
    {
        write(file, text);
        expect_config_error({"--config", file}, file + message);
    };
    expect("[layuot]\ntp = 2\n", ":2: unknown section [layuot]. nearest: [layout]");
    expect("[aaaaaaaaaaaa]\ntp = 2\n", ":2: unknown section [aaaaaaaaaaaa]. known: run layout train data");
    expect("[layout]\nmicro_bathc = 2\n", ":2: unknown key 'micro_bathc' in [layout]. nearest: micro-batch");
    expect("[layout]\nqqqqqqqqqq = 2\n", ":2: unknown key 'qqqqqqqqqq' in [layout]. known: tp micro-batch limit");
    expect("[train]\ntp = 2\n", ":2: unknown key 'tp' in [train]. it belongs to [layout]");
    expect("[layout]\n\ndry-run = true\n", ":3: unknown key 'dry-run' in [layout]. known: tp micro-batch limit");
    expect("[data.kjv]\nweigth = 1\n", ":2: unknown key 'weigth' in [data.kjv]. nearest: weight");
    expect("[data.a.b]\nweight = 1\n", ":2: unknown section [data.a.b]. nearest: [data]");
    const Environment name("PLIMSOLL_LAYOUT_PT", "2");
    expect_config_error({}, "environment variable PLIMSOLL_LAYOUT_PT names no key of a run file. nearest: "
                            "PLIMSOLL_LAYOUT_TP");
}

TEST(Cli, WrongValuesSayWhereTheyStand)
{
    expect_config_error({"--tp", "two"},
                        "--tp: 'two' is not a whole number (a count such as 50, 500K or 1.5B is wanted)");
    expect_config_error({"--tp", "0"}, "--tp: 0 is too small (at least 1)");
    expect_config_error({"--tp", "9"}, "--tp: 9 is too large (at most 8)");
    expect_config_error({"--tp", "-1"}, "--tp: -1 is negative");
    expect_config_error({"--memory-limit", "80"},
                        "--memory-limit: '80' has no unit (bytes need one). write 80GiB, 80MiB or 80GB");
    expect_config_error({"--device", "gpu"}, "--device: 'gpu' is not one of cpu cuda. nearest: cpu");
    expect_config_error({"--run.watchdog", "1h"}, "--run.watchdog: 3600s is too large (at most 1000)");
    expect_usage_error({"--tp"}, "--tp needs a value. see --help");
    expect_usage_error({"--tp", "--dry-run"}, "--tp needs a value. see --help");
    expect_usage_error({"--run.tags", "--tp", "2"}, "--run.tags needs a value. see --help");
    expect_usage_error({"--config", "--tp", "2"}, "--config needs a value. see --help");
    expect_usage_error({"--config"}, "--config needs a value. see --help");
    expect_usage_error({"--tp", "1", "--tp=2"}, "--tp is given twice (1 and 2). give it once");
    expect_usage_error({"--tp", "1", "--layout.tp=2"}, "--layout.tp is given twice (1 and 2). give it once");
    const TempDir dir;
    write(dir / "a.ini", "[train]\n\nlr = 6e-4x\n");
    expect_config_error({"--config", dir / "a.ini"},
                        (dir / "a.ini") + ":3: lr: '6e-4x' is not a number (such as 0.1 or 6e-4)");
    const Environment lr("PLIMSOLL_TRAIN_LR", "fast");
    expect_config_error({}, "PLIMSOLL_TRAIN_LR: 'fast' is not a number (such as 0.1 or 6e-4)");
}

TEST(Cli, WhatIsNotBuiltIsRefusedByName)
{
    Fixture fits;
    fits.parse({"--micro-batch", "8"});
    EXPECT_EQ(fits.batch, 8);
    expect_config_error({"--micro-batch", "16"},
                        "micro-batch 16 is not available in this version (only micro-batch 4 or 8). be patient");
    const TempDir dir;
    write(dir / "a.ini", "[layout]\nmicro-batch = 16\n");
    expect_config_error({"--config", dir / "a.ini"},
                        (dir / "a.ini") +
                            ":2: micro-batch 16 is not available in this version (only micro-batch 4 or 8). "
                            "be patient");
}

TEST(Cli, RequiredValuesAreNamedWithTheirKey)
{
    Fixture f;
    std::string out;
    f.options.add_path("", "out", out, "directory of the shards").required();
    f.parse({});
    expect_error<ConfigError>(
        [&] {
            f.options.require({"layout.tp", "train.lr"});
        },
        "layout.tp is missing (tensor parallel degree). set tp in [layout] of the run file, or --tp");
    expect_error<UsageError>([&] { f.options.check_required(); }, "--out is missing (directory of the shards)");
}

TEST(Cli, AnEmptyValueTakesBackAnIncludedOne)
{
    const TempDir dir;
    write(dir / "base.ini", "[run]\ndir = x\n");
    write(dir / "a.ini", "include = base.ini\n[run]\ndir =\n");
    Fixture f;
    f.parse({"--config", dir / "a.ini"});
    EXPECT_EQ(f.dir, "");
    EXPECT_FALSE(f.options.is_set("run.dir"));
}

TEST(Cli, TwoOptionsOfOneNameAreAFault)
{
    Fixture f;
    std::int64_t other = 0;
    f.options.add_count("", "tp", other, "clashes with a flag");
    expect_error<InternalError>([&] { f.parse({}); }, "option '--tp' is declared twice");
}

TEST(Cli, HooksSeeAllValuesAndMayDerive)
{
    Fixture f;
    f.options.on_parsed([&] { f.options.set_derived("run.dir", "/runs/" + f.name, "from run.name"); });
    f.parse({"--run.name", "demo"});
    EXPECT_NE(f.options.snapshot().find("dir = /runs/demo\n"), std::string::npos);
    EXPECT_NE(f.options.print_config().find("# from run.name\n"), std::string::npos);
}

TEST(Cli, PrintConfigShowsValuesAndOrigins)
{
    const TempDir dir;
    write(dir / "a.ini", "[layout]\ntp = 3\n");
    const Environment lr("PLIMSOLL_TRAIN_LR", "5e-1");
    Fixture f;
    f.parse({"--config", dir / "a.ini", "--device=cuda"});
    EXPECT_EQ(f.options.print_config(), "# options of this tool alone\n"
                                        "# dry-run = false    # default\n"
                                        "\n[run]\n"
                                        "name = run           # default\n"
                                        "# dir =              # not set\n"
                                        "device = cuda        # --device\n"
                                        "signal-usr1 = false  # default\n"
                                        "watchdog = 300s      # default\n"
                                        "# tags =             # not set\n"
                                        "\n[layout]\n"
                                        "tp = 3               # " +
                                            (dir / "a.ini") +
                                            ":2\n"
                                            "micro-batch = 4      # default\n"
                                            "limit = 0B           # default\n"
                                            "\n[train]\n"
                                            "lr = 0.5             # PLIMSOLL_TRAIN_LR\n"
                                            "every = never        # default\n"
                                            "\n[data]\n"
                                            "# shards =           # not set\n");
}

TEST(Cli, SnapshotsReadBackToThemselves)
{
    const TempDir dir;
    for (const char* name : {"a b.h5", "c$d.h5", "it's.h5"}) { write(dir / name, ""); }
    write(dir / "a.ini",
          "[run]\nname = 'a  b # c'\ntags = x 'y z'\n[data]\nshards = *.h5\n[train]\nevery = 100M tokens\n"
          "[data.web]\nweight = 0.1\n");
    Fixture first;
    first.parse({"--config", dir / "a.ini", "--tp", "2"});
    const std::string snapshot = first.options.snapshot();
    write(dir / "run.ini", snapshot);
    Fixture second;
    second.parse({"--config", dir / "run.ini"});
    EXPECT_EQ(second.options.snapshot(), snapshot);
    EXPECT_EQ(second.shards, first.shards);
    EXPECT_EQ(second.name, "a  b # c");
    EXPECT_EQ(second.tags, (Words{"x", "y z"}));
    EXPECT_EQ(second.every, first.every);
    EXPECT_TRUE(compare_snapshots(snapshot, second.options.snapshot()).empty());
}

TEST(Cli, SnapshotsCompareKeyByKey)
{
    const auto changes = compare_snapshots("[train]\nlr = 0.1\nsteps = 5\n[run]\nname = a\n[data]\nshards = a b\n",
                                           "[train]\nlr = 0.2\ntokens = 7\n[run]\nname = a\n[data]\nshards = 'a b'\n");
    ASSERT_EQ(changes.size(), 4u);
    EXPECT_EQ(changes[0].key, "train.lr");
    EXPECT_EQ(changes[0].old_value, "0.1");
    EXPECT_EQ(changes[0].new_value, "0.2");
    EXPECT_EQ(changes[1].key, "train.tokens");
    EXPECT_EQ(changes[1].old_value, "(not set)");
    EXPECT_EQ(changes[2].key, "data.shards");
    EXPECT_EQ(changes[3].key, "train.steps");
    EXPECT_EQ(changes[3].new_value, "(not set)");
}

TEST(Cli, HelpNamesUnitsAndDefaultsWithin100Columns)
{
    Fixture f;
    f.options.at("layout.micro-batch").unit("sequences");
    const std::string help = f.options.help({"run", "layout"});
    EXPECT_NE(help.find("\noptions\n  --dry-run                     checks and ends\n"), std::string::npos) << help;
    EXPECT_NE(help.find("  --micro-batch N               batch [sequences; default 4]\n"), std::string::npos) << help;
    EXPECT_EQ(help.find("--lr"), std::string::npos);
    for (std::size_t at = 0; at < help.size();)
    {
        const std::size_t end = help.find('\n', at);
        EXPECT_LE(end - at, 100u);
        at = end + 1;
    }
}

TEST(Cli, HomeIsExpandedInPaths)
{
    const Environment home("HOME", "/home/someone");
    EXPECT_EQ(resolve_path("~/x/../y", "/d"), "/home/someone/y");
    EXPECT_EQ(resolve_path("~x", "/d"), "/d/~x");
    EXPECT_EQ(resolve_path("/", "/d"), "/");
    EXPECT_EQ(resolve_path(".", "/d"), "/d");
}
