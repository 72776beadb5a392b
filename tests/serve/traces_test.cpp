// SPDX-License-Identifier: Apache-2.0
#include "serve/traces.h"

#include <gtest/gtest.h>

#include "tests/eventually.h"
#include "tests/json_server.h"
#include "tests/refusal.h"
#include "tests/serve/test_server.h"

namespace apus {
namespace {

constexpr const char* kParent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Traces, ARequestStandsInItsClientsTrace) {
  RequestSpan span;
  place_in_trace(kParent, span);
  EXPECT_EQ(span.trace, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span.parent, "b7ad6b7169203331");
  for (const std::string wrong : {"", "00-1-2-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                                  "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"}) {
    place_in_trace(wrong, span);
    EXPECT_EQ(span.trace.size(), 32u) << wrong;
    EXPECT_NE(span.trace, "0af7651916cd43dd8448eb211c80319c") << wrong;
    EXPECT_EQ(span.parent, "") << wrong;
  }
}

TEST(Traces, SpansAreWrittenAsCollectorsReadThem) {
  RequestSpan span{.method = "POST",
                   .path = "/v1/completions",
                   .id = "r1",
                   .model = "m",
                   .finish = "stop",
                   .status = 200,
                   .begin = 1.5,
                   .end = 2.25,
                   .prompt_tokens = 7,
                   .completion_tokens = 3,
                   .first_token = 0.5};
  place_in_trace(kParent, span);
  const Json body = otlp_traces({span}, "here");
  const Json& resource = body["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "here");
  const Json& written = resource["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(written["traceId"], span.trace);
  EXPECT_EQ(written["parentSpanId"], span.parent);
  EXPECT_EQ(written["spanId"].get<std::string>().size(), 16u);
  EXPECT_EQ(written["name"], "POST /v1/completions");
  EXPECT_EQ(written["startTimeUnixNano"], "1500000000");
  EXPECT_EQ(written["endTimeUnixNano"], "2250000000");
  const std::string attributes = written["attributes"].dump();
  for (const char* part : {R"({"key":"gen_ai.usage.input_tokens","value":{"intValue":"7"}})",
                           R"({"key":"gen_ai.server.time_to_first_token","value":{"doubleValue":0.5}})",
                           R"({"key":"http.response.status_code","value":{"intValue":"200"}})"})
    EXPECT_NE(attributes.find(part), std::string::npos) << attributes;
}

TEST(Traces, TheServerSendsASpanForEachRequest) {
  std::mutex mutex;
  Json seen = Json::array();
  test::JsonServer collector([&](const Json& body) {
    const std::lock_guard lock(mutex);
    for (const Json& span : body["resourceSpans"][0]["scopeSpans"][0]["spans"]) seen.push_back(span);
    return std::pair{200, std::string("{}")};
  });
  test::Served s;
  {
    const auto api = s.api({.verbose = false, .traces = std::make_shared<Traces>(collector.url() + "traces")});
    EXPECT_EQ(
        test::ask(*api, "POST", "/v1/chat/completions", test::question().dump(), {{"traceparent", kParent}}).status,
        200);
    EXPECT_EQ(test::ask(*api, "POST", "/v1/chat/completions", "{}").status, 400);
    EXPECT_EQ(test::ask(*api, "GET", "/health").status, 200);  // probes are no spans
  }
  ASSERT_TRUE(test::eventually([&] {
    const std::lock_guard lock(mutex);
    return seen.size() == 2;
  }));
  EXPECT_EQ(seen[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
  EXPECT_NE(seen[0].dump().find("gen_ai.usage.output_tokens"), std::string::npos);
  EXPECT_EQ(seen[1].dump().find("gen_ai.usage.output_tokens"), std::string::npos);
}

TEST(Traces, AnAddressThatIsNoneIsRefused) {
  test::expect_says(test::refusal(Fault::Usage, [] { Traces::address("localhost:4317"); }), "http://HOST:4318");
  EXPECT_EQ(Traces::address("http://h:4318"), "http://h:4318/v1/traces");
  EXPECT_EQ(Traces::address("http://h:4318/"), "http://h:4318/v1/traces");
  EXPECT_EQ(Traces::address("https://h/otlp"), "https://h/otlp");
}

}  // namespace
}  // namespace apus
