// plimsoll-record-probe FORMAT TEMPLATE < records.jsonl: the parts of each record as a line of JSON, for tests.

#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "io/record_format.hpp"

int main(int argc, char** argv)
{
    using namespace plimsoll;
    if (argc != 3) { return 2; }
    RecordOptions options;
    const std::string format = argv[1];
    options.format = format == "chat"     ? RecordFormat::chat
                     : format == "tokens" ? RecordFormat::tokens
                                          : RecordFormat::prompt_completion;
    options.chat_template = std::string(argv[2]) == "llama3" ? ChatTemplate::llama3 : ChatTemplate::chatml;
    RecordParser parser(options);
    std::string line;
    while (std::getline(std::cin, line))
    {
        const auto bytes = static_cast<std::int64_t>(line.size());
        line.append(64, ' ');
        Document document;
        nlohmann::json json;
        json["reason"] = parser.parse(line.data(), bytes, document);
        json["parts"] = nlohmann::json::array();
        for (const DocumentPart& part : document.parts)
        {
            const char* kind = part.kind == DocumentPart::Kind::special ? "special" : "text";
            json["parts"].push_back({kind, std::string(part.text), part.trainable});
        }
        json["ids"] = document.ids;
        json["mask"] = document.mask;
        std::cout << json.dump() << "\n";
    }
    return 0;
}
