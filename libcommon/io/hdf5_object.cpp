// Handles, attributes and errors of the HDF5 library.

#include <hdf5.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.hpp"
#include "io/hdf5.hpp"
#include "io/hdf5_detail.hpp"

namespace plimsoll
{

namespace hdf5_detail
{

namespace
{

std::recursive_mutex& library_mutex()
{
    static std::recursive_mutex mutex;
    return mutex;
}

// The stack is walked from the deepest entry up; that one knows the cause.
herr_t keep_first(unsigned index, const H5E_error2_t* entry, void* client)
{
    if (index == 0 && entry->desc != nullptr) { *static_cast<std::string*>(client) = entry->desc; }
    return 0;
}

int mentioned_errno(const std::string& reason)
{
    const std::size_t at = reason.find("errno = ");
    return at == std::string::npos ? 0 : std::atoi(reason.c_str() + at + 8);
}

}  // namespace

Session::Session() : lock_(library_mutex())
{
    // The thread-safe library keeps one error stack, and its printing function, for each thread.
    thread_local const bool silenced = (H5open() >= 0 && H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0);
    (void)silenced;
}

Failure take_failure()
{
    Failure failure;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &failure.reason);
    H5Eclear2(H5E_DEFAULT);
    failure.error_number = mentioned_errno(failure.reason);
    if (failure.reason.empty()) { failure.reason = "unknown error of the hdf5 library"; }
    return failure;
}

void fail(const std::string& where, std::string_view action)
{
    const Failure failure = take_failure();
    if (failure.error_number != 0)
    {
        std::string reason = std::system_category().message(failure.error_number);
        reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
        throw IoError(fmt::format("{}: cannot {} ({})", where, action, reason));
    }
    throw FormatError(fmt::format("{}: cannot {} ({})", where, action, failure.reason));
}

}  // namespace hdf5_detail

using hdf5_detail::check;
using hdf5_detail::Session;

H5Handle::~H5Handle()
{
    close();
}

H5Handle::H5Handle(H5Handle&& other) noexcept : id_(other.id_), close_(other.close_)
{
    other.id_ = -1;
}

H5Handle& H5Handle::operator=(H5Handle&& other) noexcept
{
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
}

int H5Handle::close()
{
    if (id_ < 0) { return 0; }
    const Session session;
    // A file that was closed has taken its objects with it (close degree strong); their ids are then no longer valid.
    const int status = H5Iis_valid(id_) > 0 ? close_(id_) : 0;
    if (status < 0) { H5Eclear2(H5E_DEFAULT); }
    id_ = -1;
    return status;
}

bool H5Object::has_attribute(const std::string& name) const
{
    const Session session;
    return check(H5Aexists(handle_.id(), name.c_str()), where_, "look up attribute '" + name + "'") > 0;
}

void H5Object::write_attribute(const std::string& name, std::int64_t file_type, std::int64_t memory_type,
                               const std::vector<std::uint64_t>* dims, const void* data)
{
    const Session session;
    const std::string action = "write attribute '" + name + "'";
    H5Handle attribute;
    if (H5Aexists(handle_.id(), name.c_str()) > 0)
    {
        attribute = H5Handle(check(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), where_, action), H5Aclose);
    }
    else
    {
        const hsize_t extent = dims == nullptr ? 0 : dims->size();
        const H5Handle space(check(dims == nullptr ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr),
                                   where_, action), H5Sclose);
        attribute = H5Handle(check(H5Acreate2(handle_.id(), name.c_str(), file_type, space.id(), H5P_DEFAULT, H5P_DEFAULT),
                                   where_, action), H5Aclose);
    }
    if (dims != nullptr && dims->empty()) { return; }
    check(H5Awrite(attribute.id(), memory_type, data), where_, action);
}

void H5Object::set_attribute(const std::string& name, std::int64_t value)
{
    const Session session;
    write_attribute(name, H5T_STD_I64LE, H5T_NATIVE_INT64, nullptr, &value);
}

void H5Object::set_attribute(const std::string& name, std::uint64_t value)
{
    const Session session;
    write_attribute(name, H5T_STD_U64LE, H5T_NATIVE_UINT64, nullptr, &value);
}

void H5Object::set_attribute(const std::string& name, std::uint8_t value)
{
    const Session session;
    write_attribute(name, H5T_STD_U8LE, H5T_NATIVE_UINT8, nullptr, &value);
}

void H5Object::set_attribute(const std::string& name, double value)
{
    const Session session;
    write_attribute(name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, nullptr, &value);
}

void H5Object::set_attribute(const std::string& name, const std::string& value)
{
    const Session session;
    const H5Handle type(check(H5Tcopy(H5T_C_S1), where_, "make a string type"), H5Tclose);
    // The library has no string of length zero.
    const std::size_t length = value.empty() ? 1 : value.size();
    check(H5Tset_size(type.id(), length), where_, "make a string type");
    check(H5Tset_strpad(type.id(), H5T_STR_NULLPAD), where_, "make a string type");
    check(H5Tset_cset(type.id(), H5T_CSET_UTF8), where_, "make a string type");
    write_attribute(name, type.id(), type.id(), nullptr, value.c_str());
}

void H5Object::set_attribute(const std::string& name, const std::vector<std::uint64_t>& values)
{
    const Session session;
    write_attribute(name, H5T_STD_U64LE, H5T_NATIVE_UINT64, &values, values.data());
}

namespace
{

H5Handle open_attribute(std::int64_t object, const std::string& where, const std::string& name)
{
    if (H5Aexists(object, name.c_str()) <= 0)
    {
        H5Eclear2(H5E_DEFAULT);
        throw FormatError(fmt::format("{}: no attribute '{}'", where, name));
    }
    return H5Handle(check(H5Aopen(object, name.c_str(), H5P_DEFAULT), where, "read attribute '" + name + "'"), H5Aclose);
}

std::size_t attribute_points(const H5Handle& attribute, const std::string& where)
{
    const H5Handle space(check(H5Aget_space(attribute.id()), where, "read an attribute"), H5Sclose);
    return static_cast<std::size_t>(check(H5Sget_simple_extent_npoints(space.id()), where, "read an attribute"));
}

H5T_class_t attribute_class(const H5Handle& attribute, const std::string& where)
{
    const H5Handle type(check(H5Aget_type(attribute.id()), where, "read an attribute"), H5Tclose);
    return H5Tget_class(type.id());
}

}  // namespace

void H5Object::read_attribute(const std::string& name, std::int64_t memory_type, std::size_t wanted, void* data) const
{
    const H5Handle attribute = open_attribute(handle_.id(), where_, name);
    const bool is_string = attribute_class(attribute, where_) == H5T_STRING;
    VALIDATE(!is_string && attribute_points(attribute, where_) == wanted, FormatError,
             "{}: attribute '{}' is not {} number{}", where_, name, wanted, wanted == 1 ? "" : "s");
    if (wanted == 0) { return; }
    check(H5Aread(attribute.id(), memory_type, data), where_, "read attribute '" + name + "'");
}

std::int64_t H5Object::attribute_i64(const std::string& name) const
{
    const Session session;
    std::int64_t value = 0;
    read_attribute(name, H5T_NATIVE_INT64, 1, &value);
    return value;
}

std::uint64_t H5Object::attribute_u64(const std::string& name) const
{
    const Session session;
    std::uint64_t value = 0;
    read_attribute(name, H5T_NATIVE_UINT64, 1, &value);
    return value;
}

double H5Object::attribute_f64(const std::string& name) const
{
    const Session session;
    double value = 0;
    read_attribute(name, H5T_NATIVE_DOUBLE, 1, &value);
    return value;
}

std::string H5Object::attribute_string(const std::string& name) const
{
    const Session session;
    const H5Handle attribute = open_attribute(handle_.id(), where_, name);
    const H5Handle type(check(H5Aget_type(attribute.id()), where_, "read attribute '" + name + "'"), H5Tclose);
    VALIDATE(H5Tget_class(type.id()) == H5T_STRING && H5Tis_variable_str(type.id()) == 0 &&
                 attribute_points(attribute, where_) == 1,
             FormatError, "{}: attribute '{}' is not a string of fixed length", where_, name);
    std::string value(H5Tget_size(type.id()), '\0');
    check(H5Aread(attribute.id(), type.id(), value.data()), where_, "read attribute '" + name + "'");
    value.resize(std::strlen(value.c_str()));
    return value;
}

std::vector<std::uint64_t> H5Object::attribute_u64s(const std::string& name) const
{
    const Session session;
    std::vector<std::uint64_t> values(attribute_points(open_attribute(handle_.id(), where_, name), where_));
    read_attribute(name, H5T_NATIVE_UINT64, values.size(), values.data());
    return values;
}

}  // namespace plimsoll
