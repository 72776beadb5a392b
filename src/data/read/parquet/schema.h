// SPDX-License-Identifier: Apache-2.0
// A Parquet file's columns as a tree, and what each leaf's raw values mean.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/read/parquet/thrift.h"

namespace apus {

// Parquet's numbers.
enum class Physical { Boolean = 0, Int32 = 1, Int64 = 2, Int96 = 3, Float = 4, Double = 5, Bytes = 6, Fixed = 7 };

enum class Meaning {
  Number,
  Unsigned,
  Text,
  Binary,
  Unsaid,  // bytes without an annotation, or with one that is not known
  Json,
  Decimal,
  Date,
  TimeMs,
  TimeUs,
  TimeNs,
  StampMs,
  StampUs,
  StampNs,
  Half,
  Uuid
};

struct ParquetNode {
  enum class Kind { Leaf, Struct, List, Map } kind = Kind::Leaf;
  std::string name;
  int def = 0;                        // definition level at which this node itself is present
  int rep = 0;                        // List and Map: repetition level of another item
  int item_def = 0;                   // List and Map: definition level at which there is an item
  int first_leaf = 0, leaves = 0;     // this subtree's leaves among all
  std::vector<ParquetNode> children;  // List: the item. Map: key and value.

  // Of a leaf:
  Physical physical = Physical::Bytes;
  Meaning meaning = Meaning::Number;
  int fixed_size = 0, scale = 0;
  int max_def = 0, max_rep = 0;
};

// From FileMetaData's flat list; the root is a Struct.
ParquetNode parquet_schema(const ThriftValue& elements, std::string_view where);
// The leaves of a tree in the order of a row group's columns; they point into it.
std::vector<const ParquetNode*> parquet_leaves(const ParquetNode& root);

}  // namespace apus
