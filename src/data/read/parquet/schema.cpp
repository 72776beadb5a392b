// SPDX-License-Identifier: Apache-2.0
#include "data/read/parquet/schema.h"

#include "base/error.h"

namespace apus {

namespace {

enum Repetition { kRequired = 0, kOptional = 1, kRepeated = 2 };
// Fields of SchemaElement.
enum Element {
  kType = 1,
  kLength = 2,
  kRepetition = 3,
  kName = 4,
  kChildren = 5,
  kConverted = 6,
  kScale = 7,
  kLogical = 10
};

Meaning stamp(const ThriftValue& logical, Meaning ms, Meaning us, Meaning ns) {
  const ThriftValue& unit = logical[2];
  return unit.has(1) ? ms : unit.has(2) ? us : ns;
}

Meaning meaning_of(const ThriftValue& e, Physical physical) {
  const ThriftValue& logical = e[kLogical];
  if (logical.has(8)) return stamp(logical[8], Meaning::StampMs, Meaning::StampUs, Meaning::StampNs);
  if (logical.has(7)) return stamp(logical[7], Meaning::TimeMs, Meaning::TimeUs, Meaning::TimeNs);
  if (logical.has(14)) return Meaning::Uuid;
  if (logical.has(15)) return Meaning::Half;
  if (physical == Physical::Int96) return Meaning::StampNs;
  if (e.has(kConverted)) {
    switch (e[kConverted].number) {
      case 0:
      case 4:
        return Meaning::Text;
      case 5:
        return Meaning::Decimal;
      case 6:
        return Meaning::Date;
      case 7:
        return Meaning::TimeMs;
      case 8:
        return Meaning::TimeUs;
      case 9:
        return Meaning::StampMs;
      case 10:
        return Meaning::StampUs;
      case 11:
      case 12:
      case 13:
      case 14:
        return Meaning::Unsigned;
      case 19:
        return Meaning::Json;
      default:
        break;
    }
  }
  if (logical.has(1) || logical.has(4)) return Meaning::Text;
  if (logical.has(5)) return Meaning::Decimal;
  if (logical.has(6)) return Meaning::Date;
  if (logical.has(10) && logical[10].has(2) && !logical[10][2].number) return Meaning::Unsigned;
  if (logical.has(12)) return Meaning::Json;
  const bool binary = e[kConverted].number == 20 || logical.has(13) || logical.has(16) || logical.has(17) ||
                      logical.has(18);  // BSON, variant, geometry, geography
  if (physical == Physical::Bytes) return binary ? Meaning::Binary : Meaning::Unsaid;
  return physical == Physical::Fixed ? Meaning::Binary : Meaning::Number;
}

class Builder {
 public:
  Builder(const ThriftValue& elements, std::string_view where) : elements_(elements.items), where_(where) {}

  ParquetNode root() {
    const ThriftValue& e = next();
    ParquetNode node;
    node.kind = ParquetNode::Kind::Struct;
    children(node, e, 0, 0, 0);
    return node;
  }

 private:
  const ThriftValue& next() {
    require(at_ < elements_.size(), Fault::Data, where_, ": damaged schema");
    return elements_[at_++];
  }
  void children(ParquetNode& node, const ThriftValue& e, int def, int rep, int depth) {
    require(depth < 64, Fault::Data, where_, ": schema nested more than 64 deep");
    node.first_leaf = leaf_;
    for (int64_t i = 0; i < e[kChildren].number; ++i) node.children.push_back(element(def, rep, depth + 1));
    node.leaves = leaf_ - node.first_leaf;
  }
  // One element with what is below it. A repeated one without a list around it is a list of required items.
  ParquetNode element(int def, int rep, int depth) {
    const ThriftValue& e = next();
    const int64_t repetition = e[kRepetition].number;
    if (repetition == kRepeated) {
      ParquetNode list;
      list.kind = ParquetNode::Kind::List;
      list.name = e[kName].bytes;
      list.def = def;
      list.rep = rep + 1;
      list.item_def = def + 1;
      list.first_leaf = leaf_;
      list.children.push_back(content(e, def + 1, rep + 1, depth));
      list.leaves = leaf_ - list.first_leaf;
      return list;
    }
    return content(e, def + (repetition == kOptional), rep, depth);
  }
  // The element without its repetition; `def` counts its being optional already.
  ParquetNode content(const ThriftValue& e, int def, int rep, int depth) {
    ParquetNode node;
    node.name = e[kName].bytes;
    node.def = def;
    const bool is_list = e[kLogical].has(3) || (e.has(kConverted) && e[kConverted].number == 3);
    const bool is_map =
        e[kLogical].has(2) || (e.has(kConverted) && (e[kConverted].number == 1 || e[kConverted].number == 2));
    const bool group = e.has(kChildren) && e[kChildren].number > 0;
    if (!group) {
      leaf(node, e, rep);
    } else if ((is_list || is_map) && e[kChildren].number == 1 && at_ < elements_.size() &&
               elements_[at_][kRepetition].number == kRepeated) {
      annotated(node, is_map, def, rep, depth);
    } else {
      node.kind = ParquetNode::Kind::Struct;
      children(node, e, def, rep, depth);
    }
    return node;
  }
  // <name> (LIST) { repeated group list { element } }, its older two-level form, and MAP { repeated key_value { key,
  // value } }
  void annotated(ParquetNode& node, bool is_map, int def, int rep, int depth) {
    require(depth < 64, Fault::Data, where_, ": schema nested more than 64 deep");
    const ThriftValue& repeated = next();
    node.kind = ParquetNode::Kind::List;
    node.rep = rep + 1;
    node.item_def = def + 1;
    node.first_leaf = leaf_;
    const int64_t inner = repeated[kChildren].number;
    const std::string name(repeated[kName].bytes);
    const bool wrapper = inner == 1 && name != "array" && name != node.name + "_tuple";
    if (is_map && inner == 2) {
      node.kind = ParquetNode::Kind::Map;
      node.children.push_back(element(def + 1, rep + 1, depth + 1));
      node.children.push_back(element(def + 1, rep + 1, depth + 1));
    } else if (wrapper) {
      node.children.push_back(element(def + 1, rep + 1, depth + 1));
    } else {
      node.children.push_back(content(repeated, def + 1, rep + 1, depth + 1));
    }
    node.leaves = leaf_ - node.first_leaf;
  }
  void leaf(ParquetNode& node, const ThriftValue& e, int rep) {
    const int64_t type = e[kType].number;
    require(type >= 0 && type <= 7, Fault::Data, where_, ": column '", node.name, "' has an unknown type");
    node.physical = static_cast<Physical>(type);
    node.meaning = meaning_of(e, node.physical);
    node.fixed_size = static_cast<int>(e[kLength].number);
    require(node.physical != Physical::Fixed || (node.fixed_size > 0 && node.fixed_size <= 1 << 20), Fault::Data,
            where_, ": column '", node.name, "' has a bad size");
    node.scale = static_cast<int>(e.has(kScale) ? e[kScale].number : e[kLogical][5][1].number);
    node.max_def = node.def;
    node.max_rep = rep;
    node.first_leaf = leaf_++;
    node.leaves = 1;
  }

  const std::vector<ThriftValue>& elements_;
  std::string_view where_;
  size_t at_ = 0;
  int leaf_ = 0;
};

void collect(const ParquetNode& node, std::vector<const ParquetNode*>& leaves) {
  if (node.kind == ParquetNode::Kind::Leaf) leaves.push_back(&node);
  for (const auto& child : node.children) collect(child, leaves);
}

}  // namespace

ParquetNode parquet_schema(const ThriftValue& elements, std::string_view where) {
  return Builder(elements, where).root();
}

std::vector<const ParquetNode*> parquet_leaves(const ParquetNode& root) {
  std::vector<const ParquetNode*> leaves;
  collect(root, leaves);
  return leaves;
}

}  // namespace apus
