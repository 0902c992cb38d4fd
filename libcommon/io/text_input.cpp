#include "io/text_input.hpp"

#include "base/error.hpp"
#include "io/text_input_documents.hpp"

namespace plimsoll
{

struct TextInput::Impl
{
    std::vector<InputFile> files;
    TextInputOptions options;
    std::function<void(const BadRecord&)> on_bad_record;
    BlockReader reader;
    BlockDocuments documents;
    TextBlock block;
    bool has_block = false;
    std::size_t told = 0;  ///< bad records of the block
    TextInputCounts counts;

    Impl(std::vector<InputFile> inputs, TextInputOptions given, std::function<void(const BadRecord&)> callback)
        : files(std::move(inputs)),
          options(std::move(given)),
          on_bad_record(std::move(callback)),
          reader(files, options),
          documents(files, options)
    {
    }

    void tell_bad_records()
    {
        for (; told < documents.bad_records().size(); ++told)
        {
            if (on_bad_record) { on_bad_record(documents.bad_records()[told]); }
        }
    }

    void update_counts()
    {
        counts.bad_records = documents.counts().bad_records;
        counts.invalid_utf8 = documents.counts().invalid_utf8;
        counts.lone_surrogates = documents.counts().lone_surrogates;
        counts.read_seconds = reader.read_seconds();
    }

    bool start_next_block()
    {
        if (!reader.next(block))
        {
            counts.files = static_cast<std::int64_t>(files.size());
            return false;
        }
        counts.bytes = block.file_bytes;
        counts.text_bytes += block.text_bytes;
        documents.start(block);
        told = 0;
        has_block = true;
        return true;
    }
};

TextInput::TextInput(std::vector<InputFile> files, TextInputOptions options,
                     std::function<void(const BadRecord&)> on_bad_record)
    : impl_(std::make_unique<Impl>(std::move(files), std::move(options), std::move(on_bad_record)))
{
}

TextInput::~TextInput() = default;

bool TextInput::next(Document& document)
{
    Impl& in = *impl_;
    while (in.has_block || in.start_next_block())
    {
        in.has_block = in.documents.next(document);
        in.tell_bad_records();
        in.update_counts();
        if (in.has_block) { return true; }
    }
    return false;
}

const TextInputCounts& TextInput::counts() const { return impl_->counts; }

}  // namespace plimsoll
