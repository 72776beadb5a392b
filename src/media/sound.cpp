// SPDX-License-Identifier: Apache-2.0
#include "media/sound.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace apus {

namespace {

class WavReader {
 public:
  explicit WavReader(std::string_view bytes) : bytes_(bytes) {}

  std::vector<float> read(int64_t& rate) {
    require(
        bytes_.size() >= 12 && bytes_.starts_with("RIFF") && bytes_.substr(8, 4) == "WAVE", Fault::Data,
        "no WAV file: sounds are read from WAV (PCM or floats); `ffmpeg -i in.mp3 -ar 16000 -ac 1 out.wav` makes one");
    size_t at = 12;
    while (at + 8 <= bytes_.size()) {
      const std::string_view name = bytes_.substr(at, 4);
      const size_t size = number(at + 4, 4), begin = at + 8;
      if (name == "fmt ") format(begin, size);
      if (name == "data") {
        require(channels_ > 0, Fault::Data, "a damaged WAV file (its data come before its format)");
        rate = rate_;
        // Programs that write to a pipe leave the size open.
        return samples(bytes_.substr(begin, size == 0xffffffff ? std::string_view::npos : size), size, begin);
      }
      at = begin + size + size % 2;
    }
    fail(Fault::Data, "a WAV file without data");
  }

 private:
  size_t number(size_t at, size_t count) const {
    require(at + count <= bytes_.size(), Fault::Data, "a truncated WAV file");
    size_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= size_t{static_cast<uint8_t>(bytes_[at + i])} << (8 * i);
    return value;
  }
  void format(size_t at, size_t size) {
    kind_ = number(at, 2), channels_ = number(at + 2, 2), rate_ = static_cast<int64_t>(number(at + 4, 4));
    bits_ = number(at + 14, 2);
    if (kind_ == 0xfffe && size >= 26) kind_ = number(at + 24, 2);
    const bool pcm = kind_ == 1 && (bits_ == 8 || bits_ == 16 || bits_ == 24 || bits_ == 32);
    require(pcm || (kind_ == 3 && (bits_ == 32 || bits_ == 64)), Fault::Data, "a WAV file of kind ", kind_, " with ",
            bits_, " bits; PCM of 8 to 32 bits and floats are read");
    require(channels_ >= 1 && channels_ <= 64 && rate_ >= 1000 && rate_ <= 768000, Fault::Data, "a WAV file of ",
            channels_, " channels at ", rate_, " Hz");
  }
  double value(const char* from) const {
    uint64_t bits = 0;
    for (size_t i = 0; i < bits_ / 8; ++i) bits |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
    if (kind_ == 3 && bits_ == 32) {
      float out;
      const auto low = static_cast<uint32_t>(bits);
      std::memcpy(&out, &low, sizeof out);
      return out;
    }
    if (kind_ == 3) {
      double out;
      std::memcpy(&out, &bits, sizeof out);
      return out;
    }
    if (bits_ == 8) return (static_cast<double>(bits) - 128) / 128;
    const auto shifted = static_cast<int64_t>(bits << (64 - bits_)) >> (64 - bits_);
    return static_cast<double>(shifted) / static_cast<double>(int64_t{1} << (bits_ - 1));
  }
  std::vector<float> samples(std::string_view data, size_t announced, size_t begin) const {
    const size_t frame = channels_ * bits_ / 8, count = data.size() / frame;
    require(count > 0, Fault::Data, "a WAV file without samples");
    require(announced == 0xffffffff || begin + announced <= bytes_.size(), Fault::Data,
            "a truncated WAV file: ", bytes_.size() - begin, " of ", announced, " bytes");
    require(static_cast<int64_t>(count) / rate_ <= kLongestSound, Fault::Data, "a sound of more than an hour");
    std::vector<float> out(count);
    for (size_t i = 0; i < count; ++i) {
      double sum = 0;
      for (size_t c = 0; c < channels_; ++c) sum += value(data.data() + i * frame + c * bits_ / 8);
      out[i] = static_cast<float>(std::isfinite(sum) ? sum / static_cast<double>(channels_) : 0);
    }
    return out;
  }

  std::string_view bytes_;
  size_t kind_ = 0, channels_ = 0, bits_ = 0;
  int64_t rate_ = 0;
};

constexpr int64_t kWindow = 400, kHop = 160, kBins = kWindow / 2 + 1;

struct Complex {
  double re = 0, im = 0;
};

// The transform of in[0], in[stride], ... as `count` numbers, divided by its smallest factor again and again. `turn`
// holds exp(-2 pi i k / n) for all k of a whole transform of n.
void transform(const Complex* in, int64_t stride, int64_t count, Complex* out, const std::vector<Complex>& turn) {
  if (count == 1) {
    *out = *in;
    return;
  }
  const int64_t parts = count % 2 == 0 ? 2 : 5, each = count / parts;
  const auto whole = static_cast<int64_t>(turn.size());
  std::vector<Complex> sub(static_cast<size_t>(count));
  for (int64_t p = 0; p < parts; ++p)
    transform(in + p * stride, stride * parts, each, &sub[static_cast<size_t>(p * each)], turn);
  for (int64_t k = 0; k < count; ++k) {
    Complex sum;
    for (int64_t p = 0; p < parts; ++p) {
      const Complex& t = turn[static_cast<size_t>(k * p % count * (whole / count))];
      const Complex& s = sub[static_cast<size_t>(p * each + k % each)];
      sum.re += s.re * t.re - s.im * t.im, sum.im += s.re * t.im + s.im * t.re;
    }
    out[k] = sum;
  }
}

double mel_of(double hertz) {
  return hertz < 1000 ? 3 * hertz / 200 : 15 + 27 * std::log(hertz / 1000) / std::log(6.4);
}
double hertz_of(double mel) { return mel < 15 ? 200 * mel / 3 : 1000 * std::exp((mel - 15) * std::log(6.4) / 27); }

// What `transform` turns by.
std::vector<Complex> turns_of(int64_t points) {
  std::vector<Complex> turn(static_cast<size_t>(points));
  for (int64_t k = 0; k < points; ++k) {
    const double angle = 2 * M_PI * static_cast<double>(k) / static_cast<double>(points);
    turn[static_cast<size_t>(k)] = {std::cos(angle), -std::sin(angle)};
  }
  return turn;
}

}  // namespace

std::vector<float> decode_sound(std::string_view bytes, int64_t rate) {
  int64_t own = 0;
  const std::vector<float> samples = WavReader(bytes).read(own);
  return resampled(samples, own, rate);
}

std::vector<float> resampled(const std::vector<float>& samples, int64_t from, int64_t to) {
  if (from == to || samples.empty()) return samples;
  constexpr double kReach = 32;  // zero crossings to each side
  const int64_t common = std::gcd(from, to), up = to / common, down = from / common;
  const double narrow = std::min(1.0, static_cast<double>(to) / static_cast<double>(from)) * 0.97;
  const auto reach = static_cast<int64_t>(std::ceil(kReach / narrow));
  const auto bessel = [](double x) {  // of the first kind, order zero, by its series
    double sum = 1, term = 1;
    for (int k = 1; k < 40; ++k) term *= x * x / (4.0 * k * k), sum += term;
    return sum;
  };
  // The kernel at each of the `up` places that an output can have between two inputs.
  const int64_t taps = 2 * reach + 1;
  require(up * taps <= (int64_t{1} << 24), Fault::Data, "a sound of ", from, " Hz cannot become one of ", to);
  std::vector<double> kernel(static_cast<size_t>(up * taps));
  for (int64_t phase = 0; phase < up; ++phase)
    for (int64_t k = 0; k < taps; ++k) {
      const double x = (static_cast<double>(k - reach) - static_cast<double>(phase) / static_cast<double>(up)) * narrow;
      const double share = x / kReach;
      if (std::abs(share) >= 1) continue;
      const double sinc = x == 0 ? 1 : std::sin(M_PI * x) / (M_PI * x);
      kernel[static_cast<size_t>(phase * taps + k)] =
          sinc * bessel(12 * std::sqrt(1 - share * share)) / bessel(12) * narrow;
    }
  const auto count = static_cast<int64_t>(samples.size());
  std::vector<float> out(static_cast<size_t>((count * up + down - 1) / down));
  for (int64_t i = 0; i < static_cast<int64_t>(out.size()); ++i) {
    const int64_t center = i * down / up;
    const double* weights = &kernel[static_cast<size_t>(i * down % up * taps)];
    double sum = 0;
    for (int64_t k = std::max<int64_t>(0, reach - center); k < taps && center + k - reach < count; ++k)
      sum += weights[k] * samples[static_cast<size_t>(center + k - reach)];
    out[static_cast<size_t>(i)] = static_cast<float>(sum);
  }
  return out;
}

std::vector<std::vector<float>> cut_where_quiet(const std::vector<float>& samples, int64_t most) {
  constexpr int64_t kPart = kSoundRate / 50, kQuiet = 10 * kPart;  // a fifth of a second of silence ends a sentence
  std::vector<std::vector<float>> pieces;
  int64_t begin = 0;
  const auto count = std::ssize(samples);
  const auto loudness = [&](int64_t from) {
    double sum = 0;
    for (int64_t i = from; i < std::min(from + kQuiet, count); ++i) {
      const double sample = samples[static_cast<size_t>(i)];
      sum += sample * sample;
    }
    return sum;
  };
  while (count - begin > most) {
    int64_t end = begin + most;
    double least = INFINITY;
    for (int64_t at = begin + most - most / 5; at + kQuiet <= begin + most; at += kPart)
      if (const double loud = loudness(at); loud < least) least = loud, end = at + kQuiet / 2;
    pieces.emplace_back(samples.begin() + begin, samples.begin() + end);
    begin = end;
  }
  pieces.emplace_back(samples.begin() + begin, samples.end());
  return pieces;
}

std::vector<double> mel_filters(int64_t mels, int64_t rate, int64_t points) {
  const int64_t bins = points / 2 + 1;
  std::vector<double> edges(static_cast<size_t>(mels + 2)), out(static_cast<size_t>(bins * mels));
  const double highest = static_cast<double>(rate) / 2, top = mel_of(highest);
  for (int64_t i = 0; i < mels + 2; ++i)
    edges[static_cast<size_t>(i)] = hertz_of(top * static_cast<double>(i) / static_cast<double>(mels + 1));
  for (int64_t bin = 0; bin < bins; ++bin)
    for (int64_t m = 0; m < mels; ++m) {
      const double hertz = highest * static_cast<double>(bin) / static_cast<double>(bins - 1);
      const double* e = &edges[static_cast<size_t>(m)];
      const double height = std::min((hertz - e[0]) / (e[1] - e[0]), (e[2] - hertz) / (e[2] - e[1]));
      out[static_cast<size_t>(bin * mels + m)] = std::max(0.0, height) * 2 / (e[2] - e[0]);
    }
  return out;
}

std::vector<float> log_mel(const std::vector<float>& samples, int64_t mels, int64_t padded, int64_t& frames) {
  const auto count = static_cast<int64_t>(samples.size());
  const int64_t length = std::max(padded, count);
  frames = length > count ? (count + kHop - 1) / kHop : count / kHop;
  require(frames > 0 && length > kWindow / 2, Fault::Data, "a sound of ", count, " samples is too short to be heard");
  const auto sample = [&](int64_t i) -> double {  // mirrored at both ends
    if (i < 0) i = -i;
    if (i >= length) i = 2 * (length - 1) - i;
    return i < count ? samples[static_cast<size_t>(i)] : 0;
  };
  std::vector<Complex> in(kWindow), out(kWindow);
  const std::vector<Complex> turn = turns_of(kWindow);
  std::vector<double> window(kWindow);
  for (size_t k = 0; k < kWindow; ++k) window[k] = 0.5 - 0.5 * turn[k].re;
  const std::vector<double> filters = mel_filters(mels);
  std::vector<float> spectrum(static_cast<size_t>(mels * frames));
  std::vector<double> powers(kBins);
  double highest = -INFINITY;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t k = 0; k < kWindow; ++k)
      in[static_cast<size_t>(k)] = {sample(f * kHop + k - kWindow / 2) * window[static_cast<size_t>(k)], 0};
    transform(in.data(), 1, kWindow, out.data(), turn);
    for (size_t b = 0; b < kBins; ++b) powers[b] = out[b].re * out[b].re + out[b].im * out[b].im;
    for (int64_t m = 0; m < mels; ++m) {
      double sum = 0;
      for (int64_t b = 0; b < kBins; ++b)
        sum += powers[static_cast<size_t>(b)] * filters[static_cast<size_t>(b * mels + m)];
      const double level = std::log10(std::max(sum, 1e-10));
      highest = std::max(highest, level);
      spectrum[static_cast<size_t>(m * frames + f)] = static_cast<float>(level);
    }
  }
  for (float& level : spectrum) level = (std::max(level, static_cast<float>(highest - 8)) + 4) / 4;
  return spectrum;
}

namespace {
// Triangles of equal height on the frequencies of a transform of so many points, [points / 2 + 1, mels], by the older
// formula of mels.
std::vector<double> even_filters(int64_t mels, int64_t points, double lowest, double highest) {
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const auto hertz = [](double mels_of) { return 700 * (std::pow(10, mels_of / 2595) - 1); };
  const double first = mel(lowest), step = (mel(highest) - first) / static_cast<double>(mels + 1);
  const int64_t bins = points / 2 + 1;
  std::vector<double> out(static_cast<size_t>(bins * mels));
  for (int64_t m = 0; m < mels; ++m) {
    const auto edge = [&](int64_t i) { return hertz(first + step * static_cast<double>(m + i)); };
    const double low = edge(0), middle = edge(1), high = edge(2);
    for (int64_t bin = 0; bin < bins; ++bin) {
      const double own = static_cast<double>(bin * kSoundRate) / static_cast<double>(points);
      out[static_cast<size_t>(bin * mels + m)] =
          std::max(0.0, std::min((own - low) / (middle - low), (high - own) / (high - middle)));
    }
  }
  return out;
}
}  // namespace

namespace {
// What is made of frames of so many samples, one every 10 ms, whose high tones are lifted.
struct LiftedForm {
  int64_t frame, points;        // of a frame; of its transform
  double scale = 1;             // of samples
  std::vector<double> window;   // of a frame
  std::vector<double> filters;  // [points / 2 + 1, mels]
  bool powers = false;          // of sizes elsewhere
  double floor;                 // of what filters make of them
};

// The logarithm of what the filters make, [mels, frames]; behind the samples are zeros.
std::vector<float> lifted(const std::vector<float>& samples, int64_t mels, int64_t frames, const LiftedForm& form) {
  constexpr double kLift = 0.97;
  const int64_t count = std::ssize(samples);
  const auto sample = [&](int64_t i) { return i < count ? samples[static_cast<size_t>(i)] * form.scale : 0; };
  const std::vector<Complex> turn = turns_of(form.points);
  std::vector<Complex> in(static_cast<size_t>(form.points)), out(static_cast<size_t>(form.points));
  std::vector<double> sizes(static_cast<size_t>(form.points / 2 + 1));
  std::vector<float> spectrum(static_cast<size_t>(mels * frames));
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t k = 0; k < form.frame; ++k) {
      const double own = sample(f * kHop + k), before = k > 0 ? sample(f * kHop + k - 1) : own;
      in[static_cast<size_t>(k)] = {(own - kLift * before) * form.window[static_cast<size_t>(k)], 0};
    }
    transform(in.data(), 1, form.points, out.data(), turn);
    for (size_t b = 0; b < sizes.size(); ++b) {
      sizes[b] = std::hypot(out[b].re, out[b].im);
      if (form.powers) sizes[b] *= sizes[b];
    }
    for (int64_t m = 0; m < mels; ++m) {
      double sum = 0;
      for (size_t b = 0; b < sizes.size(); ++b)
        sum += sizes[b] * form.filters[b * static_cast<size_t>(mels) + static_cast<size_t>(m)];
      spectrum[static_cast<size_t>(m * frames + f)] = static_cast<float>(std::log(std::max(sum, form.floor)));
    }
  }
  return spectrum;
}

// Triangles of equal height over mels, by the formula of natural logarithms.
std::vector<double> filters_over_mels(int64_t mels, int64_t points, double highest) {
  const auto mel = [](double hertz) { return 1127 * std::log(1 + hertz / 700); };
  const double step = mel(highest) / static_cast<double>(mels + 1);
  const int64_t bins = points / 2 + 1;
  std::vector<double> out(static_cast<size_t>(bins * mels));
  for (int64_t bin = 0; bin < bins; ++bin) {
    const double own = mel(static_cast<double>(bin * kSoundRate) / static_cast<double>(points)) / step;
    for (int64_t m = 0; m < mels; ++m)
      out[static_cast<size_t>(bin * mels + m)] = std::max(0.0, 1 - std::abs(own - static_cast<double>(m + 1)));
  }
  return out;
}
}  // namespace

std::vector<float> log_mel_lifted(const std::vector<float>& samples, int64_t mels, int64_t& frames) {
  constexpr int64_t kFrame = 512, kPoints = 1024, kWhole = 128;
  const int64_t count = std::ssize(samples), filled = (count + kWhole - 1) / kWhole * kWhole;
  require(filled > kFrame, Fault::Data, "a sound of ", count, " samples is too short to be heard");
  frames = (filled - kFrame - 1) / kHop + 1;
  const std::vector<Complex> turn = turns_of(kFrame);
  std::vector<double> window;
  for (const Complex& each : turn) window.push_back(0.5 - 0.5 * each.re);
  return lifted(samples, mels, frames,
                {.frame = kFrame,
                 .points = kPoints,
                 .window = std::move(window),
                 .filters = even_filters(mels, kPoints, 125, 7600),
                 .floor = 1e-5});
}

std::vector<float> log_mel_of_powers(const std::vector<float>& samples, int64_t mels, int64_t& frames) {
  constexpr int64_t kPoints = 512;
  const int64_t count = std::ssize(samples);
  require(count >= kWindow, Fault::Data, "a sound of ", count, " samples is too short to be heard");
  frames = (count - kWindow) / kHop + 1;
  std::vector<double> window;
  for (int64_t k = 0; k < kWindow; ++k)
    window.push_back(0.54 - 0.46 * std::cos(2 * M_PI * static_cast<double>(k) / static_cast<double>(kWindow - 1)));
  return lifted(samples, mels, frames,
                {.frame = kWindow,
                 .points = kPoints,
                 .scale = 32768,
                 .window = std::move(window),
                 .filters = filters_over_mels(mels, kPoints, 7690),
                 .powers = true,
                 .floor = 1});
}

}  // namespace apus
