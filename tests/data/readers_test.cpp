// SPDX-License-Identifier: Apache-2.0
// Every reader gives the rows that were written, with where they came from, from any place again.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "data/read/byte_source.h"
#include "data/read/parquet/compression.h"
#include "data/read/reader.h"
#include "tests/data/data_test_tools.h"
#include "tests/paths.h"

namespace apus {
namespace {

namespace fs = std::filesystem;

fs::path table(const std::string& name) { return test::source_dir() / "tests/data/tables" / name; }

// Row by row; numbers by value, so that 3 and 3.0 are the same.
void expect_table(const fs::path& path) {
  const auto expected = read_rows(table("table.expected.jsonl"));
  const auto rows = read_rows(path);
  ASSERT_EQ(rows.size(), expected.size()) << path;
  for (size_t i = 0; i < rows.size(); ++i) ASSERT_EQ(rows[i].value, expected[i].value) << path << " row " << i;
  EXPECT_EQ(rows[5].origin.text(), path.string() + ", row 6");
}

class Tables : public testing::TestWithParam<const char*> {};
TEST_P(Tables, HoldTheRowsThatWereWritten) { expect_table(table(GetParam())); }
INSTANTIATE_TEST_SUITE_P(Formats, Tables,
                         testing::Values("table_snappy.parquet", "table_gzip.parquet", "table_zstd.parquet",
                                         "table_lz4.parquet", "table_delta_strings.parquet",
                                         "table_delta_lengths.parquet", "table.stream.arrow", "table.file.arrow"));

TEST(ParquetTable, BytesWithoutAnAnnotationAreTextWhereTheyAreUtf8) {
  const auto rows = read_rows(table("unannotated.parquet"));
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].value["text"], "caf\u00e9");
  EXPECT_EQ(rows[1].value["text"], "data:application/octet-stream;base64,/wA=");
  EXPECT_EQ(rows[1].value["when"], "2024-01-01T01:00:00");  // int96
  EXPECT_TRUE(rows[2].value["text"].is_null());
  EXPECT_EQ(rows[3].value["when"], "1969-12-31T23:59:59.999999999");
}

TEST(ParquetTable, PagesAndChunksOfOtherWritersAreRead) {
  // A v2 page of nulls without a byte of values behind its levels; a group without rows whose column lies nowhere.
  const auto nulls = read_rows(table("empty_pages.parquet"));
  ASSERT_EQ(nulls.size(), 3u);
  EXPECT_EQ(nulls[2].value, (Json{{"a", nullptr}}));
  // The size of the chunk leaves out its dictionary's header, as parquet-mr 1.2 wrote it.
  std::string words;
  for (const auto& row : read_rows(table("short_chunk.parquet"))) words += row.value["a"].get<std::string>() + " ";
  EXPECT_EQ(words, "no yes no yes ");
}

TEST(ParquetTable, BrotliIsReadWhereItsLibraryIs) {
  const auto read = [] { return read_rows(table("small_brotli.parquet")); };
  const std::string said = error_of([&] { read(); });
  if (said != "(no error)") {
    EXPECT_NE(said.find("libbrotlidec.so.1 is not installed"), std::string::npos) << said;
    return;
  }
  ASSERT_EQ(read().size(), 40u);
  EXPECT_EQ(read()[39].value, (Json{{"text", "row 39 abcabcabcabcabc"}, {"n", 39}}));
}

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string gzip_member(const std::string& text) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(256, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data())), z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data()), z.avail_out = 256;
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(256 - z.avail_out);
  deflateEnd(&z);
  return out;
}

TEST(Compression, SeveralGzipMembersAreOnePage) {
  const std::string two = gzip_member("first ") + gzip_member("second");
  EXPECT_EQ(decompress(Codec::Gzip, bytes_of(two), 12, "page"), "first second");
  for (const size_t wrong : {11, 13})
    EXPECT_THROW(decompress(Codec::Gzip, bytes_of(two), wrong, "page"), Error) << wrong;
}

TEST(Compression, HadoopsLz4IsFramesOrWhatSomeWritersMadeOfIt) {
  const std::string first =
                        "\x40"
                        "abcd",
                    second =
                        "\x30"
                        "efg";  // literals alone
  const std::string frames = std::string("\0\0\0\4\0\0\0\5", 8) + first + std::string("\0\0\0\3\0\0\0\4", 8) + second;
  EXPECT_EQ(decompress(Codec::Lz4Hadoop, bytes_of(frames), 7, "page"), "abcdefg");
  EXPECT_EQ(decompress(Codec::Lz4Hadoop, bytes_of(first), 4, "page"), "abcd");
  for (size_t cut = 1; cut < frames.size(); ++cut)
    EXPECT_THROW(decompress(Codec::Lz4Hadoop, bytes_of(frames.substr(0, cut)), 7, "page"), Error) << cut;
}

TEST(ArrowTable, WholeNumbersKeepTheirSigns) {
  const auto rows = read_rows(table("signed.stream.arrow"));
  ASSERT_EQ(rows.size(), 2u);
  const Json first = {
      {"i8", -128},         {"i16", -2}, {"i32", -2147483648}, {"u32", 4294967295}, {"i64", -9007199254740993},
      {"day", "1960-02-29"}};
  EXPECT_EQ(rows[0].value, first);
  EXPECT_EQ(rows[1].value["i32"], 2147483647);
}

// Reading on from a position gives what reading through gives.
void expect_seekable(const fs::path& path) {
  auto reader = open_reader(path);
  std::vector<ReadPosition> positions;
  std::vector<Row> rows;
  for (Row row;;) {
    positions.push_back(reader->position());
    if (!reader->next(row)) break;
    rows.push_back(row);
  }
  ASSERT_GT(rows.size(), 2u);
  for (size_t i = 0; i < positions.size(); i += std::max<size_t>(1, positions.size() / 7)) {
    auto again = open_reader(path);
    again->seek(positions[i]);
    Row row;
    ASSERT_EQ(again->next(row), i < rows.size()) << path << " from " << i;
    if (i == rows.size()) continue;
    EXPECT_EQ(row.value, rows[i].value) << path << " from " << i;
    EXPECT_EQ(row.origin.text(), rows[i].origin.text());
  }
}

TEST_P(Tables, AreReadOnFromAnyPlace) { expect_seekable(table(GetParam())); }

TEST(Readers, JsonLinesNameLinesAndGoOnAfterABadOne) {
  TemporaryFolder dir;
  const auto path = dir.write("a.jsonl", "\xef\xbb\xbf{\"a\": 1}\r\n\n{'a': True}\n[1]\n{\"a\": \"\xff\"}\n{\"a\": 2}");
  auto reader = open_reader(path);
  Row row;
  ASSERT_TRUE(reader->next(row));
  EXPECT_EQ(row.value["a"], 1);
  EXPECT_EQ(row.origin.text(), path.string() + ", line 1");
  EXPECT_NE(row_error(*reader).find("line 3: not valid JSON"), std::string::npos);
  EXPECT_NE(row_error(*reader).find("line 4: a row must be a JSON object, this is array"), std::string::npos);
  EXPECT_NE(row_error(*reader).find("line 5"), std::string::npos);
  ASSERT_TRUE(reader->next(row));
  EXPECT_EQ(row.origin.line, 6);
  EXPECT_FALSE(reader->next(row));
  expect_seekable(dir.write("b.jsonl", "{\"a\": 1}\n\n{\"a\": 2}\n{\"a\": 3}\n"));
}

TEST(Readers, JsonAsListInsideAnObjectAndOneAfterTheOther) {
  TemporaryFolder dir;
  const std::string rows = "{\"a\": \"x]},{\"},\n {\"a\": [1, {\"b\": \"\\\"\"}]}, {\"a\": 3}";
  for (const std::string& text : {"[" + rows + "]", "{\"version\": [1], \"data\": [" + rows + "], \"end\": 1}",
                                  std::string("{\"a\": \"x]},{\"}\n\n{\"a\": [1, {\"b\": \"\\\"\"}]}{\"a\": 3}")}) {
    const auto path = dir.write("a.json", text);
    const auto read = read_rows(path);
    ASSERT_EQ(read.size(), 3u) << text;
    EXPECT_EQ(read[0].value["a"], "x]},{");
    EXPECT_EQ(read[1].value["a"][1]["b"], "\"");
    EXPECT_EQ(read[2].value["a"], 3);
    expect_seekable(path);
  }
  EXPECT_EQ(read_rows(dir.write("one.json", "{\"data\": \"not rows\", \"b\": 1}")).size(), 1u);
  EXPECT_EQ(read_rows(dir.write("none.json", " [] ")).size(), 0u);
  EXPECT_THROW(read_rows(dir.write("cut.json", "[{\"a\": 1}, {\"a\": ")), Error);
  EXPECT_THROW(read_rows(dir.write("cut2.json", "[{\"a\": 1}")), Error);
}

TEST(Readers, JsonFilesLoseNoRowInSilence) {
  TemporaryFolder dir;
  const auto said = [&](const std::string& text) {
    const auto path = dir.write("a.json", text);
    return error_of([&] { read_rows(path); });
  };
  EXPECT_NE(said("[{\"a\": 1},\n{\"a\": 2}]\n{\"a\": 3}").find("line 3: there is more behind the end of the list"),
            std::string::npos);
  EXPECT_NE(said("[{\"a\": 1}]]").find("there is more behind the end"), std::string::npos);
  EXPECT_NE(said("[{\"a\": 1}\n{\"a\": 2}]").find("line 2: a comma is missing between two rows"), std::string::npos);
  EXPECT_NE(said("[{\"a\": 1},\n,{\"a\": 2}]").find("line 2: a comma too many"), std::string::npos);
  EXPECT_NE(said("[{\"a\": 1},\n]").find("line 2: a comma too many"), std::string::npos);
  EXPECT_NE(said("[,{\"a\": 1}]").find("a comma before the first row"), std::string::npos);
  EXPECT_NE(said("{\"data\": [{\"a\": 1}] \"b\": 2}").find("goes on wrongly"), std::string::npos);
  EXPECT_NE(said("{\"data\": [{\"a\": 1}], \"b\": 2} {}").find("there is more behind the end"), std::string::npos);
  EXPECT_NE(
      said("{\"train\": [{\"a\": 1}], \"rows\": [{\"a\": 2}]}").find("rows in 'rows' too, besides those of 'train'"),
      std::string::npos);
  EXPECT_EQ(said("{\"train\": [{\"a\": 1}], \"test\": [{\"a\": 2}], \"n\": 3}\n"), "(no error)");
  // The end is the end, wherever reading begins.
  const auto path = dir.write("b.json", "{\"data\": [{\"a\": 1}, {\"a\": 2}], \"b\": 2}");
  auto reader = open_reader(path);
  Row row;
  while (reader->next(row)) {}
  const ReadPosition end = reader->position();
  auto again = open_reader(path);
  again->seek(end);
  EXPECT_FALSE(again->next(row));
}

TEST(Readers, TextThatIsNoUtf8IsToldWithItsPlaceAndReadByItsEncoding) {
  TemporaryFolder dir;
  const auto csv = dir.write("a.csv", "query,response\nplain,text\nwhere,caf\xe9 noir\nlast,row\n");
  auto reader = open_reader(csv);
  Row row;
  ASSERT_TRUE(reader->next(row));
  EXPECT_NE(row_error(*reader).find("line 3, key 'response': no UTF-8: the byte 0xe9 after \"caf\""),
            std::string::npos);
  ASSERT_TRUE(reader->next(row));
  EXPECT_EQ(row.value["query"], "last");
  const auto recoded = [&](const fs::path& path, const std::string& encoding) {
    auto file = open_reader(path, encoding);
    std::vector<Json> rows;
    std::vector<ReadPosition> places = {file->position()};
    for (Row each; file->next(each); places.push_back(file->position())) rows.push_back(each.value);
    for (size_t i = 0; i < rows.size(); ++i) {  // from any place again
      auto from = open_reader(path, encoding);
      from->seek(places[i]);
      Row each;
      EXPECT_TRUE(from->next(each) && each.value == rows[i]) << path << " " << i;
    }
    return rows;
  };
  EXPECT_EQ(recoded(csv, "latin-1").at(1)["response"], "caf\u00e9 noir");
  std::string wide = "\xff\xfe";
  for (const char c : std::string("{\"query\": \"a\"}\n{\"query\": \"b\"}\n")) (wide += c) += '\0';
  EXPECT_EQ(recoded(dir.write("b.jsonl", wide), "utf-16").at(1)["query"], "b");
  try {
    check_encoding("gbk");  // not every system has its table
    EXPECT_EQ(recoded(dir.write("c.csv", "query,response\n\xc4\xe3,\xba\xc3\n"), "gbk").at(0)["query"], "\u4f60");
  } catch (const Error& error) {
    EXPECT_EQ(error.at.fault, Fault::Usage);
  }
  EXPECT_NE(error_of([] { check_encoding("klingon"); }).find("--encoding klingon: this system cannot read it"),
            std::string::npos);
  const auto bad = dir.write("d.txt", "abc\n\xff\xff\n");
  EXPECT_NE(error_of([&] { recoded(bad, "utf-8"); }).find("byte 5 is no utf-8; is --encoding right?"),
            std::string::npos);
  EXPECT_NE(
      error_of([&] { open_reader(dir.write("e.csv", "caf\xe9,b\n1,2\n")); }).find("names of the columns are no UTF-8"),
      std::string::npos);
}

TEST(Readers, CsvWithQuotesNewlinesAndEmptyCells) {
  TemporaryFolder dir;
  const auto path = dir.write("a.csv", "query,response,n\r\n\"a, \"\"b\"\"\",\"two\nlines\",1\r\n,x,\r\n\r\nlast,y,3");
  const auto rows = read_rows(path);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].value["query"], "a, \"b\"");
  EXPECT_EQ(rows[0].value["response"], "two\nlines");
  EXPECT_EQ(rows[1].value["query"], "");
  EXPECT_EQ(rows[1].value["n"], "");
  EXPECT_EQ(rows[2].origin.line, 6);
  EXPECT_NE(row_error(*open_reader(dir.write("b.csv", "a,b\n1,2,3\n")))
                .find("line 2: 3 fields, but the first line names 2 columns"),
            std::string::npos);
  EXPECT_EQ(read_rows(dir.write("c.tsv", "a\tb\n1\t2\n")).at(0).value["b"], "2");
}

TEST(Readers, CsvOfSpreadsheetsWithOtherDelimiters) {
  TemporaryFolder dir;
  for (const char delimiter : {';', '\t', '|'}) {
    std::string text = "query;response\n\"a;b\";1,5\nc;\"d\"\ne;f\n";
    std::replace(text.begin(), text.end(), ';', delimiter);
    const auto path = dir.write(std::string("d") + std::to_string(delimiter) + ".csv", text);
    const auto rows = read_rows(path);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].value["query"], std::string("a") + delimiter + "b");
    EXPECT_EQ(rows[0].value["response"], "1,5");
    EXPECT_EQ(rows[1].value["response"], "d");
    EXPECT_EQ(rows[1].origin.line, 3);
    expect_seekable(path);
  }
  EXPECT_EQ(read_rows(dir.write("q.csv", "\"\"\"a\"\";\"\"b\"\"\"\nx\n")).at(0).value["\"a\";\"b\""], "x");
  EXPECT_EQ(read_rows(dir.write("one.csv", "text\na;b\n")).at(0).value["text"], "a;b");
}

TEST(Readers, CompressedFilesByTheirFirstBytes) {
  TemporaryFolder dir;
  const std::string text = "one\ntwo\n\nthree\n";
  std::string packed(1000, '\0');
  z_stream z{};
  ASSERT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(packed.data());
  z.avail_out = 1000;
  ASSERT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  packed.resize(z.total_out);
  deflateEnd(&z);
  EXPECT_EQ(read_rows(dir.write("a.txt.gz", packed)).size(), 3u);
  EXPECT_EQ(read_rows(dir.write("two.txt.gz", packed + packed)).size(), 6u);  // members one after the other
  expect_seekable(dir.write("a.txt.gz", packed));
  EXPECT_THROW(read_rows(dir.write("cut.txt.gz", packed.substr(0, packed.size() - 6))), Error);
  std::string frame(1000, '\0');
  frame.resize(ZSTD_compress(frame.data(), frame.size(), text.data(), text.size(), 3));
  EXPECT_EQ(read_rows(dir.write("a.txt.zst", frame)).at(2).value["text"], "three");
  EXPECT_THROW(read_rows(dir.write("cut.txt.zst", frame.substr(0, frame.size() - 3))), Error);
}

TEST(Readers, SayWhatIsWrongWithAFile) {
  TemporaryFolder dir;
  EXPECT_NE(error_of([&] { open_reader(dir.path() / "missing.jsonl"); }).find("No such file"), std::string::npos);
  EXPECT_NE(error_of([&] { open_reader(dir.write("a.xlsx", "")); }).find("unknown kind of dataset file (.xlsx)"),
            std::string::npos);
  EXPECT_NE(error_of([&] { open_reader(dir.write("u.jsonl", std::string("\xff\xfe{\0", 4))); }).find("UTF-16"),
            std::string::npos);
  EXPECT_NE(error_of([&] { open_reader(dir.write("p.jsonl", "PAR1....")); }).find("Parquet"), std::string::npos);
  EXPECT_NE(error_of([&] { open_reader(dir.write("cut.parquet", "PAR1............")); }).find("downloaded completely"),
            std::string::npos);
}

TEST(Readers, DamagedTablesAreErrorsAndNothingElse) {
  TemporaryFolder dir;
  for (const char* name :
       {"table_snappy.parquet", "table_gzip.parquet", "table_delta_strings.parquet", "table.stream.arrow"}) {
    const std::string whole = read_file(table(name));
    for (size_t i = 0; i < 150; ++i) {
      std::string damaged = whole;
      for (size_t k = 0; k < 3; ++k)
        damaged[(i * 7919 + k * 104729) % damaged.size()] ^= static_cast<char>(1 + i * 31 + k);
      try {
        read_rows(dir.write(std::string("damaged") + fs::path(name).extension().string(), damaged));
      } catch (const Error& error) {
        EXPECT_NE(error.at.fault, Fault::Bug) << error.what();
      }
    }
  }
}

}  // namespace
}  // namespace apus
