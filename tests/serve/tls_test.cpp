// SPDX-License-Identifier: Apache-2.0
// The server over TLS, with a key and a certificate made here: requests, a stream, clients that speak something else.
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <memory>

#include "tests/eventually.h"
#include "tests/folder.h"
#include "tests/serve/test_client.h"

namespace apus {
namespace {
using test::chat;
using test::Client;
using test::status_of;

// A key and a certificate signed by itself, in files for the server; and what a client needs who trusts it.
class Identity {
 public:
  Identity() {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -3600);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    X509_set_pubkey(certificate, key);
    X509_NAME* name = X509_get_subject_name(certificate);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                               0);
    X509_set_issuer_name(certificate, name);
    X509_sign(certificate, key, EVP_sha256());
    write("key.pem", [&](FILE* f) { PEM_write_PrivateKey(f, key, nullptr, nullptr, 0, nullptr, nullptr); });
    write("cert.pem", [&](FILE* f) { PEM_write_X509(f, certificate); });
    X509_free(certificate);
    EVP_PKEY_free(key);
    SSL_CTX_set_verify(client_.get(), SSL_VERIFY_PEER, nullptr);
    SSL_CTX_load_verify_locations(client_.get(), file("cert.pem").c_str(), nullptr);
  }
  std::string file(const char* name) const { return (folder_.path / name).string(); }
  HttpServerSpec server() const { return {.tls_key = file("key.pem"), .tls_certificate = file("cert.pem")}; }
  SSL_CTX* client() const { return client_.get(); }

 private:
  template <class F>
  void write(const char* name, const F& f) const {
    FILE* out = std::fopen(file(name).c_str(), "w");
    f(out);
    std::fclose(out);
  }
  const test::Folder folder_;
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> client_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
};

TEST(HttpServerTls, RequestsAndAStream) {
  const Identity identity;
  test::Listening l(identity.server());
  Client c(l.server.port(), identity.client());
  ASSERT_TRUE(c.connected());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(c.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
    EXPECT_EQ(status_of(c.answer()), 200);
  }
  ASSERT_TRUE(c.send(chat()));
  EXPECT_NE(c.answer().find("Hello, world!"), std::string::npos);
  ASSERT_TRUE(c.send(chat(R"(, "stream": true)")));
  ASSERT_TRUE(c.read_to("0\r\n\r\n"));
  EXPECT_NE(c.received().find("text/event-stream"), std::string::npos);
  EXPECT_EQ(test::events(c.received()).back(), "[DONE]");
  ASSERT_TRUE(c.send("GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_TRUE(c.is_closed());
}

TEST(HttpServerTls, LargeBodiesAndManyClients) {
  const Identity identity;
  test::Listening l(identity.server());
  Client large(l.server.port(), identity.client());
  ASSERT_TRUE(large.send(test::request("/detokenize", "{\"tokens\": [" + std::string(1 << 20, ' ') + "5]}")));
  EXPECT_EQ(status_of(large.answer()), 200);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) clients.push_back(std::make_unique<Client>(l.server.port(), identity.client()));
  for (auto& c : clients) ASSERT_TRUE(c->send(chat(R"(, "stream": true)")));
  for (auto& c : clients) EXPECT_TRUE(c->read_to("data: [DONE]"));
}

TEST(HttpServerTls, WhoLeavesIsForgotten) {
  const Identity identity;
  test::Listening l(identity.server());
  l.engine.hold = true;
  Client c(l.server.port(), identity.client());
  ASSERT_TRUE(c.send(chat(R"(, "stream": true)")));
  ASSERT_TRUE(l.engine.has_seen(1));
  c.leave();
  EXPECT_TRUE(l.engine.becomes_idle());
  EXPECT_TRUE(test::eventually([&] { return l.server.connections() == 0; }));
}

TEST(HttpServerTls, WhoSpeaksSomethingElse) {
  const Identity identity;
  test::Listening l(identity.server());
  Client plain(l.server.port());
  ASSERT_TRUE(plain.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_TRUE(plain.is_closed());
  EXPECT_EQ(status_of(plain.received()), 400);
  EXPECT_NE(plain.received().find("https://"), std::string::npos) << plain.received();
  Client noise(l.server.port());
  ASSERT_TRUE(noise.send(std::string(500, '\x7f')));
  EXPECT_TRUE(noise.is_closed());
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> old(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_security_level(old.get(), 0);
  SSL_CTX_set_max_proto_version(old.get(), TLS1_1_VERSION);
  EXPECT_FALSE(Client(l.server.port(), old.get()).connected()) << "TLS 1.1 is too old";
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> wary(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_verify(wary.get(), SSL_VERIFY_PEER, nullptr);
  EXPECT_FALSE(Client(l.server.port(), wary.get()).connected()) << "it does not know this certificate";
  Client next(l.server.port(), identity.client());
  ASSERT_TRUE(next.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_EQ(status_of(next.answer()), 200) << "the server goes on";
  next.leave();
  EXPECT_TRUE(test::eventually([&] { return l.server.connections() == 0; })) << "nobody is left over";
}

TEST(HttpServerTls, AHandshakeThatNeverEndsIsCutOff) {
  const Identity identity;
  HttpServerSpec spec = identity.server();
  spec.header_seconds = 1;
  test::Listening l(spec);
  Client silent(l.server.port());
  EXPECT_TRUE(silent.is_closed());
}

}  // namespace
}  // namespace apus
