#include "io/hdf5.hpp"

#include <hdf5.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/hdf5_detail.hpp"

namespace plimsoll
{

using hdf5_detail::check;
using hdf5_detail::Session;

namespace
{

// A float type that HDF5 1.10 does not predefine: `sign`, `exponent` and `mantissa` bits from the top, IEEE-like.
H5Handle make_float_type(std::size_t exponent_bits, std::size_t mantissa_bits, std::size_t bias)
{
    const std::string where = "float type";
    H5Handle type(check(H5Tcopy(H5T_IEEE_F32LE), where, "make"), H5Tclose);
    const std::size_t sign_position = exponent_bits + mantissa_bits;
    // Fields first: a type may not be made smaller than what its fields span.
    check(H5Tset_fields(type.id(), sign_position, mantissa_bits, exponent_bits, 0, mantissa_bits), where, "make");
    check(H5Tset_precision(type.id(), sign_position + 1), where, "make");
    check(H5Tset_size(type.id(), (sign_position + 8) / 8), where, "make");
    check(H5Tset_ebias(type.id(), bias), where, "make");
    return type;
}

H5Handle copy_type(std::int64_t type)
{
    return H5Handle(check(H5Tcopy(type), "type", "copy"), H5Tclose);
}

H5Handle make_type(Dtype dtype)
{
    switch (dtype)
    {
        case Dtype::f32: return copy_type(H5T_IEEE_F32LE);
        case Dtype::f64: return copy_type(H5T_IEEE_F64LE);
        case Dtype::bf16: return make_float_type(8, 7, 127);
        case Dtype::f16: return make_float_type(5, 10, 15);
        case Dtype::i32: return copy_type(H5T_STD_I32LE);
        case Dtype::i64: return copy_type(H5T_STD_I64LE);
        // The library decodes e4m3's largest values as NaN: both fp8 kinds are bytes with an attribute.
        case Dtype::f8_e4m3:
        case Dtype::f8_e5m2:
        case Dtype::u8: return copy_type(H5T_STD_U8LE);
        case Dtype::u16: return copy_type(H5T_STD_U16LE);
        case Dtype::u32: return copy_type(H5T_STD_U32LE);
        case Dtype::u64: return copy_type(H5T_STD_U64LE);
    }
    throw InternalError("unknown dtype");
}

H5Handle column_type(const H5Column& column)
{
    H5Handle element;
    switch (column.kind)
    {
        case H5Column::Kind::u8: element = copy_type(H5T_STD_U8LE); break;
        case H5Column::Kind::u32: element = copy_type(H5T_STD_U32LE); break;
        case H5Column::Kind::u64: element = copy_type(H5T_STD_U64LE); break;
        case H5Column::Kind::i64: element = copy_type(H5T_STD_I64LE); break;
        case H5Column::Kind::f64: element = copy_type(H5T_IEEE_F64LE); break;
        case H5Column::Kind::text:
            element = copy_type(H5T_C_S1);
            check(H5Tset_size(element.id(), column.count), column.name, "make a string type");
            check(H5Tset_strpad(element.id(), H5T_STR_NULLPAD), column.name, "make a string type");
            check(H5Tset_cset(element.id(), H5T_CSET_UTF8), column.name, "make a string type");
            return element;
    }
    if (column.count == 1) { return element; }
    const hsize_t count = column.count;
    return H5Handle(check(H5Tarray_create2(element.id(), 1, &count), column.name, "make an array type"), H5Tclose);
}

H5Handle table_type(const H5TableType& table)
{
    H5Handle type(check(H5Tcreate(H5T_COMPOUND, table.row_bytes), "table type", "make"), H5Tclose);
    for (const H5Column& column : table.columns)
    {
        const H5Handle member = column_type(column);
        check(H5Tinsert(type.id(), column.name.c_str(), column.offset, member.id()), column.name, "make a table type");
    }
    return type;
}

H5Handle file_access(H5File::Access access, const H5CreateOptions* options)
{
    H5Handle list(check(H5Pcreate(H5P_FILE_ACCESS), "file access", "set up"), H5Pclose);
    // V110 checksums all metadata and leaves a mark in a file that was not closed.
    check(H5Pset_libver_bounds(list.id(), H5F_LIBVER_V110, H5F_LIBVER_V110), "file access", "set up");
    check(H5Pset_fclose_degree(list.id(), H5F_CLOSE_STRONG), "file access", "set up");
    if (options != nullptr)
    {
        check(H5Pset_alignment(list.id(), static_cast<hsize_t>(options->align_threshold),
                               static_cast<hsize_t>(options->alignment)), "file access", "set up");
        check(H5Pset_meta_block_size(list.id(), hsize_t{1} << 16), "file access", "set up");
    }
    // Readers take no lock: parallel file systems often have none, and a committed file never changes.
    if (access == H5File::Access::read) { check(H5Pset_file_locking(list.id(), false, true), "file access", "set up"); }
    return list;
}

H5Handle link_creation()
{
    H5Handle list(check(H5Pcreate(H5P_LINK_CREATE), "link", "set up"), H5Pclose);
    check(H5Pset_char_encoding(list.id(), H5T_CSET_UTF8), "link", "set up");
    return list;
}

[[noreturn]] void fail_open(const std::string& path)
{
    const hdf5_detail::Failure failure = hdf5_detail::take_failure();
    const int number = failure.error_number;
    if (number == EAGAIN || number == ENOLCK || number == 524)
    {
        throw IoError(fmt::format("cannot lock '{}' (another process writes it, or the file system has no locks). "
                                  "HDF5_USE_FILE_LOCKING=FALSE turns locking off", path));
    }
    if (number != 0) { throw_io_error("open", path, number); }
    if (failure.reason.find("already open for write") != std::string::npos)
    {
        throw FormatError(fmt::format("{}: was not closed by its writer (interrupted save?)", path));
    }
    if (failure.reason.find("file signature not found") != std::string::npos)
    {
        throw FormatError(fmt::format("{}: not an hdf5 file (no signature)", path));
    }
    if (failure.reason.find("truncated file") != std::string::npos)
    {
        throw FormatError(fmt::format("{}: {}", path, failure.reason));
    }
    throw FormatError(fmt::format("{}: damaged hdf5 file ({})", path, failure.reason));
}

std::vector<std::uint64_t> extents(std::int64_t space, const std::string& where)
{
    const int num_dims = check(H5Sget_simple_extent_ndims(space), where, "read the shape");
    std::vector<hsize_t> dims(static_cast<std::size_t>(num_dims));
    if (num_dims > 0) { check(H5Sget_simple_extent_dims(space, dims.data(), nullptr), where, "read the shape"); }
    return std::vector<std::uint64_t>(dims.begin(), dims.end());
}

}  // namespace

H5Dataset::H5Dataset(H5Handle handle, std::string where) : H5Object(std::move(handle), std::move(where))
{
    const H5Handle space(check(H5Dget_space(handle_.id()), where_, "read the shape"), H5Sclose);
    dims_ = extents(space.id(), where_);
}

std::int64_t H5Dataset::num_elements() const
{
    std::int64_t number = 1;
    for (const std::uint64_t dim : dims_) { number *= static_cast<std::int64_t>(dim); }
    return number;
}

Dtype H5Dataset::dtype() const
{
    const Session session;
    const H5Handle type(check(H5Dget_type(handle_.id()), where_, "read the type"), H5Tclose);
    if (H5Aexists(handle_.id(), "dtype") > 0)
    {
        const std::string name = attribute_string("dtype");
        if (name == dtype_name(Dtype::f8_e4m3)) { return Dtype::f8_e4m3; }
        if (name == dtype_name(Dtype::f8_e5m2)) { return Dtype::f8_e5m2; }
    }
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i32, Dtype::i64, Dtype::u8,
                              Dtype::u16, Dtype::u32, Dtype::u64})
    {
        if (H5Tequal(type.id(), make_type(dtype).id()) > 0) { return dtype; }
    }
    throw FormatError(fmt::format("{}: element type is none that plimsoll writes", where_));
}

std::int64_t H5Dataset::file_offset() const
{
    const Session session;
    const haddr_t address = H5Dget_offset(handle_.id());
    H5Eclear2(H5E_DEFAULT);
    return address == HADDR_UNDEF ? -1 : static_cast<std::int64_t>(address);
}

std::int64_t H5Dataset::storage_bytes() const
{
    const Session session;
    return static_cast<std::int64_t>(H5Dget_storage_size(handle_.id()));
}

void H5Dataset::write(const void* data)
{
    const Session session;
    if (num_elements() == 0) { return; }
    // Memory type = file type: the library copies and never converts.
    const H5Handle type(check(H5Dget_type(handle_.id()), where_, "read the type"), H5Tclose);
    check(H5Dwrite(handle_.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), where_, "write");
}

void H5Dataset::read(void* data) const
{
    const Session session;
    if (num_elements() == 0) { return; }
    const H5Handle type(check(H5Dget_type(handle_.id()), where_, "read the type"), H5Tclose);
    check(H5Dread(handle_.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, data), where_, "read");
}

namespace
{

struct Slab
{
    H5Handle file;
    H5Handle memory;
};

Slab select_rows(std::int64_t dataset, const std::vector<std::uint64_t>& dims, std::int64_t begin, std::int64_t num,
                 const std::string& where)
{
    EXPECT(!dims.empty() && begin >= 0 && num >= 0 && static_cast<std::uint64_t>(begin + num) <= dims[0]);
    std::vector<hsize_t> start(dims.size(), 0);
    std::vector<hsize_t> count(dims.begin(), dims.end());
    start[0] = static_cast<hsize_t>(begin);
    count[0] = static_cast<hsize_t>(num);
    Slab slab;
    slab.file = H5Handle(check(H5Dget_space(dataset), where, "select rows"), H5Sclose);
    check(H5Sselect_hyperslab(slab.file.id(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr), where,
          "select rows");
    slab.memory = H5Handle(check(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), where,
                                 "select rows"), H5Sclose);
    return slab;
}

}  // namespace

void H5Dataset::write_rows(std::int64_t begin, std::int64_t num, const void* data)
{
    const Session session;
    if (num == 0) { return; }
    const Slab slab = select_rows(handle_.id(), dims_, begin, num, where_);
    const H5Handle type(check(H5Dget_type(handle_.id()), where_, "read the type"), H5Tclose);
    check(H5Dwrite(handle_.id(), type.id(), slab.memory.id(), slab.file.id(), H5P_DEFAULT, data), where_, "write");
}

void H5Dataset::read_rows(std::int64_t begin, std::int64_t num, void* data) const
{
    const Session session;
    if (num == 0) { return; }
    const Slab slab = select_rows(handle_.id(), dims_, begin, num, where_);
    const H5Handle type(check(H5Dget_type(handle_.id()), where_, "read the type"), H5Tclose);
    check(H5Dread(handle_.id(), type.id(), slab.memory.id(), slab.file.id(), H5P_DEFAULT, data), where_, "read");
}

std::vector<std::string> H5Group::children() const
{
    const Session session;
    H5G_info_t info = {};
    check(H5Gget_info(handle_.id(), &info), where_, "list");
    std::vector<std::string> names;
    for (hsize_t k = 0; k < info.nlinks; ++k)
    {
        // Files of other writers may not track creation order: then by name.
        H5_index_t index = H5_INDEX_CRT_ORDER;
        ssize_t length = H5Lget_name_by_idx(handle_.id(), ".", index, H5_ITER_INC, k, nullptr, 0, H5P_DEFAULT);
        if (length < 0)
        {
            index = H5_INDEX_NAME;
            length = H5Lget_name_by_idx(handle_.id(), ".", index, H5_ITER_INC, k, nullptr, 0, H5P_DEFAULT);
        }
        check(length, where_, "list");
        std::string name(static_cast<std::size_t>(length) + 1, '\0');
        check(H5Lget_name_by_idx(handle_.id(), ".", index, H5_ITER_INC, k, name.data(), name.size(), H5P_DEFAULT), where_,
              "list");
        name.pop_back();
        names.push_back(std::move(name));
    }
    H5Eclear2(H5E_DEFAULT);
    return names;
}

H5File H5File::create(const std::string& path, const H5CreateOptions& options)
{
    const Session session;
    File(path, File::Mode::create).close();  // says in our words why a file cannot be made
    const H5Handle access = file_access(Access::read_write, &options);
    const H5Handle creation(check(H5Pcreate(H5P_FILE_CREATE), path, "create"), H5Pclose);
    check(H5Pset_link_creation_order(creation.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), path, "create");
    // No object carries a time: the same content has the same bytes.
    check(H5Pset_obj_track_times(creation.id(), false), path, "create");
    const hid_t id = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, creation.id(), access.id());
    if (id < 0) { fail_open(path); }
    return H5File(H5Handle(id, H5Fclose), path);
}

H5File H5File::open(const std::string& path, Access access)
{
    const Session session;
    File(path, access == Access::read ? File::Mode::read : File::Mode::read_write).close();
    const H5Handle list = file_access(access, nullptr);
    const hid_t id = H5Fopen(path.c_str(), access == Access::read ? H5F_ACC_RDONLY : H5F_ACC_RDWR, list.id());
    if (id < 0) { fail_open(path); }
    return H5File(H5Handle(id, H5Fclose), path);
}

std::string H5File::where(const std::string& object) const
{
    return path_ + ": " + object;
}

H5Group H5File::root() const
{
    return group("/");
}

H5Group H5File::group(const std::string& path) const
{
    const Session session;
    return H5Group(H5Handle(check(H5Gopen2(handle_.id(), path.c_str(), H5P_DEFAULT), where(path), "open"), H5Gclose),
                   path == "/" ? path_ : where(path));
}

H5Group H5File::create_group(const std::string& path)
{
    const Session session;
    make_parents(path);
    return make_group(path);
}

H5Group H5File::make_group(const std::string& path)
{
    const H5Handle links = link_creation();
    const H5Handle creation(check(H5Pcreate(H5P_GROUP_CREATE), where(path), "create"), H5Pclose);
    check(H5Pset_link_creation_order(creation.id(), H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED), where(path), "create");
    check(H5Pset_obj_track_times(creation.id(), false), where(path), "create");
    H5Handle id(check(H5Gcreate2(handle_.id(), path.c_str(), links.id(), creation.id(), H5P_DEFAULT), where(path), "create"),
                H5Gclose);
    groups_.insert(path);
    return H5Group(std::move(id), where(path));
}

// Groups that the library makes on the way carry the time of day: the same content would not have the same bytes.
void H5File::make_parents(const std::string& path)
{
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    {
        const std::string parent = path.substr(0, slash);
        if (groups_.count(parent) > 0) { continue; }
        if (exists(parent)) { groups_.insert(parent); }
        else { make_group(parent); }
    }
}

bool H5File::exists(const std::string& path) const
{
    const Session session;
    // H5Lexists wants every parent to exist.
    for (std::size_t slash = path.find('/', 1); ; slash = path.find('/', slash + 1))
    {
        const std::string part = path.substr(0, slash);
        const htri_t found = H5Lexists(handle_.id(), part.c_str(), H5P_DEFAULT);
        H5Eclear2(H5E_DEFAULT);
        if (found <= 0) { return false; }
        if (slash == std::string::npos) { return true; }
    }
}

H5Dataset H5File::make_dataset(const std::string& path, std::int64_t type, const std::vector<std::int64_t>& dims)
{
    make_parents(path);
    const H5Handle creation(check(H5Pcreate(H5P_DATASET_CREATE), where(path), "create"), H5Pclose);
    check(H5Pset_layout(creation.id(), H5D_CONTIGUOUS), where(path), "create");
    check(H5Pset_alloc_time(creation.id(), H5D_ALLOC_TIME_EARLY), where(path), "create");
    check(H5Pset_fill_time(creation.id(), H5D_FILL_TIME_NEVER), where(path), "create");
    check(H5Pset_obj_track_times(creation.id(), false), where(path), "create");
    const std::vector<hsize_t> extent(dims.begin(), dims.end());
    const H5Handle space(check(dims.empty() ? H5Screate(H5S_SCALAR)
                                            : H5Screate_simple(static_cast<int>(dims.size()), extent.data(), nullptr),
                               where(path), "create"), H5Sclose);
    const H5Handle links = link_creation();
    H5Handle id(check(H5Dcreate2(handle_.id(), path.c_str(), type, space.id(), links.id(), creation.id(), H5P_DEFAULT),
                      where(path), "create"), H5Dclose);
    return H5Dataset(std::move(id), where(path));
}

H5Dataset H5File::create_dataset(const std::string& path, Dtype dtype, const std::vector<std::int64_t>& dims)
{
    const Session session;
    const H5Handle type = make_type(dtype);
    H5Dataset dataset = make_dataset(path, type.id(), dims);
    if (dtype == Dtype::f8_e4m3 || dtype == Dtype::f8_e5m2)
    {
        dataset.set_attribute("dtype", std::string(dtype_name(dtype)));
    }
    return dataset;
}

H5Dataset H5File::dataset(const std::string& path) const
{
    const Session session;
    VALIDATE(exists(path), FormatError, "{}: no dataset '{}'", path_, path);
    return H5Dataset(H5Handle(check(H5Dopen2(handle_.id(), path.c_str(), H5P_DEFAULT), where(path), "open"), H5Dclose),
                     where(path));
}

H5Dataset H5File::create_table(const std::string& path, const H5TableType& type, std::int64_t num_rows)
{
    const Session session;
    const H5Handle compound = table_type(type);
    return make_dataset(path, compound.id(), {num_rows});
}

void H5File::read_table(const std::string& path, const H5TableType& type, void* rows) const
{
    const Session session;
    const H5Dataset table = dataset(path);
    const H5Handle stored(check(H5Dget_type(table.handle_.id()), table.where(), "read the type"), H5Tclose);
    VALIDATE(H5Tget_class(stored.id()) == H5T_COMPOUND && table.dims().size() == 1, FormatError, "{}: not a table",
             table.where());
    for (const H5Column& column : type.columns)
    {
        const int found = H5Tget_member_index(stored.id(), column.name.c_str());
        H5Eclear2(H5E_DEFAULT);
        VALIDATE(found >= 0, FormatError, "{}: no column '{}'", table.where(), column.name);
    }
    if (table.num_elements() == 0) { return; }
    const H5Handle compound = table_type(type);
    check(H5Dread(table.handle_.id(), compound.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows), table.where(), "read");
}

void H5File::write_table(const std::string& path, const H5TableType& type, const void* rows)
{
    const Session session;
    const H5Dataset table = dataset(path);
    if (table.num_elements() == 0) { return; }
    const H5Handle compound = table_type(type);
    check(H5Dwrite(table.handle_.id(), compound.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, rows), table.where(), "write");
}

H5Dataset H5File::create_strings(const std::string& path, const std::vector<std::string>& values)
{
    const Session session;
    std::size_t length = 1;
    for (const std::string& value : values) { length = std::max(length, value.size()); }
    H5Column column;
    column.name = path;
    column.kind = H5Column::Kind::text;
    column.count = length;
    const H5Handle type = column_type(column);
    H5Dataset dataset = make_dataset(path, type.id(), {static_cast<std::int64_t>(values.size())});
    std::string packed(length * values.size(), '\0');
    for (std::size_t k = 0; k < values.size(); ++k) { values[k].copy(packed.data() + k * length, length); }
    dataset.write(packed.data());
    return dataset;
}

std::vector<std::string> H5File::read_strings(const std::string& path) const
{
    const Session session;
    const H5Dataset strings = dataset(path);
    const H5Handle type(check(H5Dget_type(strings.handle_.id()), strings.where(), "read the type"), H5Tclose);
    VALIDATE(H5Tget_class(type.id()) == H5T_STRING && H5Tis_variable_str(type.id()) == 0 && strings.dims().size() == 1,
             FormatError, "{}: not a list of strings of fixed length", strings.where());
    const std::size_t length = H5Tget_size(type.id());
    std::string packed(length * strings.dims()[0], '\0');
    strings.read(packed.data());
    std::vector<std::string> values;
    for (std::uint64_t k = 0; k < strings.dims()[0]; ++k)
    {
        const std::string value = packed.substr(k * length, length);
        values.push_back(value.substr(0, value.find('\0')));
    }
    return values;
}

void H5File::flush()
{
    const Session session;
    check(H5Fflush(handle_.id(), H5F_SCOPE_LOCAL), path_, "write");
}

void H5File::close()
{
    const Session session;
    flush();
    if (handle_.close() < 0) { throw IoError(fmt::format("{}: cannot close", path_)); }
}

}  // namespace plimsoll
