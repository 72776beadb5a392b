// SPDX-License-Identifier: Apache-2.0
// Values as text: str(), repr() and json.dumps().
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/strings.h"
#include "text/jinja/value.h"

namespace apus::jinja {

namespace {

void hex_escape(std::string& out, const char* form, char32_t point) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, form, static_cast<unsigned>(point));
  out += buffer;
}

std::string quoted(std::string_view text) {
  const bool both = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = both ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size(); at += point_size(text, at)) {
    const char32_t point = point_at(text, at);
    if (point == static_cast<char32_t>(quote) || point == '\\')
      (out += '\\') += static_cast<char>(point);
    else if (point == '\n')
      out += "\\n";
    else if (point == '\r')
      out += "\\r";
    else if (point == '\t')
      out += "\\t";
    else if (point < 0x20 || point == 0x7F)
      hex_escape(out, "\\x%02x", point);
    else if (point < 0x7F || is_printable(point))
      out += text.substr(at, point_size(text, at));
    else
      hex_escape(out, point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x", point);
  }
  return out + quote;
}

class Printer {
 public:
  explicit Printer(Heap& heap) : heap_(heap) {}

  void print(const Value& value) {
    heap_.budget.work();
    if (out_.size() > static_cast<size_t>(heap_.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
    switch (value.kind()) {
      case Kind::Undefined:
        out_ += "Undefined";
        break;
      case Kind::None:
        out_ += "None";
        break;
      case Kind::Bool:
        out_ += value.boolean() ? "True" : "False";
        break;
      case Kind::Int:
        out_ += std::to_string(value.integer());
        break;
      case Kind::BigInt:
        out_ += integer_text(value);
        break;
      case Kind::Float:
        out_ += float_repr(value.real());
        break;
      case Kind::String:
        out_ += value.markup() ? "Markup(" + jinja::quoted(value.bytes()) + ")" : jinja::quoted(value.bytes());
        break;
      default:
        print_object(value);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  void print_object(const Value& value) {
    heap_.budget.check_stack();
    if (std::find(open_.begin(), open_.end(), value.object()) != open_.end()) {  // inside itself
      out_ += value.is(Kind::Dict) ? "{...}" : value.is(Kind::Namespace) ? "<Namespace {...}>" : "[...]";
      return;
    }
    open_.push_back(value.object());
    switch (value.kind()) {
      case Kind::List:
        print_items("[", value.as<ListObject>().items, "]");
        break;
      case Kind::Tuple: {
        const auto& items = value.as<ListObject>().items;
        print_items("(", items, items.size() == 1 ? ",)" : ")");
        break;
      }
      case Kind::Dict:
        print_dict(value.as<DictObject>());
        break;
      case Kind::View:
        out_ += type_name(value);
        print_items("([", iterate(heap_, value), "])");
        break;
      case Kind::Range: {
        const auto& range = value.as<RangeObject>();
        out_ += str("range(", range.start, ", ", range.stop, range.step == 1 ? "" : str(", ", range.step), ")");
        break;
      }
      case Kind::Namespace:
        out_ += "<Namespace ";
        print_dict(value.as<NamespaceObject>().members);
        out_ += ">";
        break;
      case Kind::Method:
        out_ += str("<built-in method ", value.as<MethodObject>().entry->name, " of ",
                    type_name(value.as<MethodObject>().self), " object>");
        break;
      default:
        out_ += str("<", type_name(value), " object>");
    }
    open_.pop_back();
  }

  void print_items(const char* open, const std::vector<Value>& items, const char* close) {
    out_ += open;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += ", ";
      print(items[i]);
    }
    out_ += close;
  }

  void print_dict(const DictObject& dict) {
    out_ += "{";
    for (size_t i = 0; i < dict.items.size(); ++i) {
      if (i) out_ += ", ";
      print(dict.items[i].first);
      out_ += ": ";
      print(dict.items[i].second);
    }
    out_ += "}";
  }

  Heap& heap_;
  std::string out_;
  std::vector<const Object*> open_;
};

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  void write(const Value& value) {
    heap_.budget.work();
    if (out_.size() > static_cast<size_t>(heap_.budget.limits.output_bytes))
      trouble("a text larger than the output may be");
    switch (value.kind()) {
      case Kind::None:
        out_ += "null";
        break;
      case Kind::Bool:
        out_ += value.boolean() ? "true" : "false";
        break;
      case Kind::Int:
      case Kind::BigInt:
        out_ += integer_text(value);
        break;
      case Kind::Float:
        out_ += real(value.real());
        break;
      case Kind::String:
        write_string(value.bytes());
        break;
      case Kind::List:
      case Kind::Tuple:
        write_list(value.as<ListObject>().items);
        break;
      case Kind::Dict:
        write_dict(value.as<DictObject>());
        break;
      default:
        trouble("Object of type ", type_name(value), " is not JSON serializable");
    }
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string real(double value) {
    return std::isnan(value) ? "NaN" : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity") : float_repr(value);
  }

  void new_line() {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth_; ++i) out_ += style_.indent;
  }

  void write_list(const std::vector<Value>& items) {
    heap_.budget.check_stack();
    out_ += '[';
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) out_ += style_.item_separator;
      new_line();
      write(items[i]);
    }
    --depth_;
    if (!items.empty()) new_line();
    out_ += ']';
  }

  std::string key_text(const Value& key) const {
    switch (key.kind()) {
      case Kind::String:
        return key.bytes();
      case Kind::Int:
      case Kind::BigInt:
        return integer_text(key);
      case Kind::Float:
        return real(key.real());
      case Kind::Bool:
        return key.boolean() ? "true" : "false";
      case Kind::None:
        return "null";
      default:
        trouble("keys must be str, int, float, bool or None, not ", type_name(key));
    }
  }

  void write_dict(const DictObject& dict) {
    heap_.budget.check_stack();
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.items) members.push_back(&member);
    if (style_.sort_keys) {
      std::stable_sort(members.begin(), members.end(),
                       [&](const auto* a, const auto* b) { return compare(heap_, a->first, b->first, "<") < 0; });
    }
    out_ += '{';
    ++depth_;
    for (size_t i = 0; i < members.size(); ++i) {
      if (i) out_ += style_.item_separator;
      new_line();
      write_string(key_text(members[i]->first));
      out_ += style_.key_separator;
      write(members[i]->second);
    }
    --depth_;
    if (!members.empty()) new_line();
    out_ += '}';
  }

  void write_string(std::string_view text) {
    heap_.budget.work(static_cast<int64_t>(text.size() >> 6));
    out_ += '"';
    for (size_t at = 0; at < text.size(); at += point_size(text, at)) {
      const char32_t point = point_at(text, at);
      switch (point) {
        case '"':
          out_ += "\\\"";
          break;
        case '\\':
          out_ += "\\\\";
          break;
        case '\n':
          out_ += "\\n";
          break;
        case '\r':
          out_ += "\\r";
          break;
        case '\t':
          out_ += "\\t";
          break;
        case '\f':
          out_ += "\\f";
          break;
        case '\b':
          out_ += "\\b";
          break;
        default:
          write_point(text, at, point);
      }
    }
    out_ += '"';
  }

  void write_point(std::string_view text, size_t at, char32_t point) {
    if (point < 0x20 || (style_.ensure_ascii && point > 0x7E && point < 0x10000)) {
      hex_escape(out_, "\\u%04x", point);
    } else if (style_.ensure_ascii && point >= 0x10000) {
      hex_escape(out_, "\\u%04x", 0xD800 + ((point - 0x10000) >> 10));
      hex_escape(out_, "\\u%04x", 0xDC00 + ((point - 0x10000) & 0x3FF));
    } else {
      out_ += text.substr(at, point_size(text, at));
    }
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string repr(Heap& heap, const Value& value) {
  Printer printer(heap);
  printer.print(value);
  return printer.take();
}

std::string to_text(Heap& heap, const Value& value) {
  if (value.is(Kind::String)) return value.bytes();
  return value.is(Kind::Undefined) ? std::string() : repr(heap, value);
}

std::string to_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value);
  return writer.take();
}

}  // namespace apus::jinja
