"""The include scan itself: each rule finds its fault in a tree made for it, and a good tree has none."""

import os
import tempfile
import unittest

from include_scan import scan


class IncludeScan(unittest.TestCase):
    def faults(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.join(root, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return [f"{path}:{line}: {what}" for path, line, what in scan(root)]

    def test_a_good_tree_has_no_faults(self):
        self.assertEqual(self.faults({
            "libcommon/base/error.hpp": "#pragma once\n#include <fmt/format.h>\n#include <sys/stat.h>\n#include <string>\n",
            "libcommon/base/cli.cpp": "#include <boost/program_options.hpp>\n#include \"base/error.hpp\"\n",
            "libcommon/base/log.cpp": "void f() { std::fprintf(stderr, \"x\"); }\n",
            "libcommon/io/hdf5.cpp": "#include <hdf5.h>\n#include \"comm/communicator.hpp\"\n",
            "libcommon/nn/block.hpp": "#pragma once\n#include <ATen/core/Tensor.h>\n#include \"engine/recorder.hpp\"\n",
            "libcommon/nn/block.cpp": "#include <ATen/ops/mm.h>\n",
            "tools/train/main.cpp": "#include \"nn/trainer.hpp\"\n#include \"options.hpp\"\n",
        }), [])

    def test_an_upper_layer_is_found_with_its_line(self):
        self.assertEqual(self.faults({"libcommon/layout/mesh.cpp": "#include <vector>\n#include \"io/file.hpp\"\n"}),
                         ["libcommon/layout/mesh.cpp:2: \"io/file.hpp\": layout may not use io"])

    def test_a_torch_free_tool_may_not_use_nn(self):
        self.assertEqual(self.faults({"tools/shard/main.cpp": "#include \"nn/trainer.hpp\"\n"}),
                         ["tools/shard/main.cpp:1: \"nn/trainer.hpp\": shard may not use nn"])

    def test_third_party_headers_stay_in_their_layer_and_out_of_headers(self):
        found = self.faults({
            "libcommon/base/units.cpp": "#include <boost/program_options.hpp>\n",
            "libcommon/base/cli.hpp": "#pragma once\n#include <boost/program_options.hpp>\n",
            "libcommon/io/checkpoint.hpp": "#pragma once\n#include <hdf5.h>\n",
            "libcommon/engine/executor.cpp": "#include <mpi.h>\n#include <ATen/ATen.h>\n",
            "libcommon/nn/block.hpp": "#pragma once\n#include <ATen/ATen.h>\n",
            "libcommon/mem/device.cpp": "#include <cuda_runtime_api.h>\n#include <rare/thing.h>\n",
        })
        self.assertEqual([line.split(" ")[0] for line in found], [
            "libcommon/base/cli.hpp:2:", "libcommon/base/units.cpp:1:", "libcommon/engine/executor.cpp:1:",
            "libcommon/engine/executor.cpp:2:", "libcommon/io/checkpoint.hpp:2:", "libcommon/mem/device.cpp:1:",
            "libcommon/mem/device.cpp:2:", "libcommon/nn/block.hpp:2:"])
        self.assertIn("<rare/thing.h> is in no row of the layer table", "\n".join(found))

    def test_printing_and_exiting_are_found_but_not_in_comments_and_strings(self):
        self.assertEqual(self.faults({"libcommon/io/file.cpp":
                                      "// exit(1) is never called\nconst char* text = \"printf(\";\nvoid f() { std::exit(1); }\n"
                                      "void g() { std::cout << 1; }\nvoid h(Run& run) { run.exit(2); on_exit(3); }\n"}),
                         ["libcommon/io/file.cpp:3: 'std::exit' ends the process; library code throws",
                          "libcommon/io/file.cpp:4: 'std::cout' prints; library code throws"])

    def test_a_header_without_guard_and_a_relative_include_are_found(self):
        self.assertEqual(self.faults({"libcommon/base/a.hpp": "#include \"../base/b.hpp\"\n"}),
                         ["libcommon/base/a.hpp:1: a header starts with #pragma once",
                          "libcommon/base/a.hpp:1: \"../base/b.hpp\" is a relative include; name the layer"])

    def test_an_unknown_folder_is_no_layer(self):
        self.assertEqual(self.faults({"libcommon/misc/a.cpp": "\n"}), ["libcommon/misc/a.cpp:1: folder 'misc' is no layer"])

    def test_long_files_and_open_ends_are_found(self):
        self.assertEqual(self.faults({"tests/unit/a_test.cpp": "\n" * 601, "scripts/a.sh": "# TO" + "DO later\n"}),
                         ["tests/unit/a_test.cpp:601: 601 lines, at most 600: split it", "scripts/a.sh:1: open end 'TO" + "DO'"])


if __name__ == "__main__":
    unittest.main()
