// Command quantity_vectors writes what apimachinery's resource.ParseQuantity says about many texts, one JSON object
// per line, for tests/data/quantity_vectors.jsonl.gz. The same seed always gives the same bytes before compression.
//
//	go run . -o ../../tests/data/quantity_vectors.jsonl.gz
package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// vector is one text and Go's verdict on it. Canonical is the computed form; Text is String(), which repeats some
// inputs unchanged. Value and Milli are rounded up and present for amounts in [0, int64]. Lossy marks a canonical form
// that Go itself reads back as a different amount.
type vector struct {
	Input     string   `json:"in"`
	OK        bool     `json:"ok"`
	Canonical string   `json:"canonical,omitempty"`
	Text      string   `json:"text,omitempty"`
	Format    string   `json:"format,omitempty"`
	Sign      int      `json:"sign,omitempty"`
	Value     *int64   `json:"value,omitempty"`
	Milli     *int64   `json:"milli,omitempty"`
	Float     *float64 `json:"float,omitempty"`
	Lossy     bool     `json:"lossy,omitempty"`
}

func main() {
	out := flag.String("o", "-", "file to write, gzip-compressed; - writes plain text to standard output")
	count := flag.Int("n", 26000, "how many vectors")
	seed := flag.Uint64("seed", 1, "seed of the random texts")
	flag.Parse()
	if err := write(*out, *count, *seed); err != nil {
		log.Fatal(err)
	}
}

func write(path string, count int, seed uint64) error {
	if path == "-" {
		return encode(os.Stdout, count, seed)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	compressed, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := encode(compressed, count, seed); err != nil {
		return err
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return file.Close()
}

func encode(sink io.Writer, count int, seed uint64) error {
	buffered := bufio.NewWriter(sink)
	encoder := json.NewEncoder(buffered)
	encoder.SetEscapeHTML(false)
	for _, text := range texts(count, rand.New(rand.NewPCG(seed, 0))) {
		if err := encoder.Encode(judge(text)); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
	}
	return buffered.Flush()
}

func judge(text string) vector {
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return vector{Input: text}
	}
	result := vector{Input: text, OK: true, Text: quantity.String(), Format: string(quantity.Format), Sign: quantity.Sign()}
	number, suffix := quantity.CanonicalizeBytes(nil)
	result.Canonical = string(number) + string(suffix)
	again, err := resource.ParseQuantity(result.Canonical)
	result.Lossy = err != nil || again.Cmp(quantity) != 0
	// Go rounds negative amounts in two ways depending on their digits, and wraps beyond int64: neither is a fact to keep.
	if quantity.Sign() >= 0 && quantity.CmpInt64(math.MaxInt64) <= 0 {
		value := quantity.Value()
		result.Value = &value
	}
	if quantity.Sign() >= 0 && quantity.CmpInt64(math.MaxInt64/1000) <= 0 {
		milli := quantity.MilliValue()
		result.Milli = &milli
	}
	if float := quantity.AsFloat64Slow(); !math.IsInf(float, 0) {
		result.Float = &float
	}
	return result
}

var (
	suffixes = []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	// Rounding a far exponent takes Go minutes and gigabytes; the Python tests cover those on their own.
	far = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{3,}`)
)

const alphabet = "0123456789.+-eEinumkKMGTPi"

// texts gives the written cases first and random ones of several kinds after them, without repetition.
func texts(count int, random *rand.Rand) []string {
	var found []string
	seen := map[string]bool{}
	add := func(text string) {
		if !seen[text] && !far.MatchString(text) {
			seen[text] = true
			found = append(found, text)
		}
	}
	for _, text := range written() {
		add(text)
	}
	kinds := []func(*rand.Rand) string{wellFormed, wellFormed, wellFormed, nearLimit, exponential, exponential, mutated, mutated, noise}
	for turn := 0; len(found) < count; turn++ {
		add(kinds[turn%len(kinds)](random))
	}
	return found
}

func written() []string {
	cases := []string{
		"", " ", "+", "-", ".", "+.", "-.", "..", "1..2", "1.2.3", "--1", "++1", "+-1", "- 1", " 1", "1 ", "1 Gi", "\t1",
		"1\n", "1_000", "1,5", "0x10", "inf", "NaN", "nan", "Infinity", "١", "１", "1é", "é", "1µ", "1K", "1g", "1t", "1p",
		"1ki", "1mi", "1KI", "1kI", "1ni", "1ui", "1i", "1iK", "1KiB", "1Kb", "1Mib", "1ee3", "1e", "1E", "1e+", "1e-",
		"1E+", "1e1.5", "1e3m", "1m1", "1Ki1", "1e0", "1E0", "1e00", "1e-0", "1e+0", "1e03", "1e+003", "0", "00", "-0", "+0",
		"0.0", "0.", ".0", "-.0", "0e5", "0m", "0Ki", "0Ei", "00.00Ki", "007", "+5", "-5", "5.", "5.G", "5.Ki", ".5", ".5Ki",
		"5.500", "5.5", "0.001", "0.0001", "0.000000001", "0.0000000001", "-0.0000000001", "1.0000000001", "1e-10", "1e-9",
		"0.5Ki", "0.0005Ki", "0.1Ki", "0.3Ki", "1.1Ki", "0.00000000001Ki", "1.5Gi", "1.25Mi", "0.9999999999Ki", "1023", "1024",
		"1025", "1023Ki", "1024Ki", "1048576", "1000Ki", "1k", "1000", "1000k", "1000000", "999999999999999999",
		"9999999999999999999", "1000E", "1e21", "1E21", "1000000E", "123456789012345678901234567890", "1e100", "9e99", "1e-100",
		"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9223372036854775807Ki",
		"8Ei", "7Ei", "7.9999999999999999999Ei", "-8Ei", "100Ei", "-100Ei", "8192Pi", "8191Pi", "9007199254740993",
		"18446744073709551616", "1e18", "1e19", "1P", "1000P", "100m", "1000m", "1500m", "12.345", "12.3456k", "1.23456789012345678",
		"1.234567890123456789", "1n", "999n", "1000n", "1u", "0.1n", "0.9n", "1.1n", "0.0001u", "0.5m", "4Gi", "768Gi", "500m", "64k",
	}
	for _, suffix := range suffixes {
		cases = append(cases, suffix, "+"+suffix, "-"+suffix, "."+suffix, "-."+suffix, "0"+suffix, "0."+suffix, ".0"+suffix)
	}
	for exponent := -12; exponent <= 24; exponent++ {
		cases = append(cases, fmt.Sprintf("e%d", exponent), fmt.Sprintf(".e%d", exponent), fmt.Sprintf("-E%d", exponent))
		for _, mantissa := range []string{"0", "1", "-1", "10", "1000", "1.5", "0.001", "123456789"} {
			cases = append(cases, fmt.Sprintf("%se%d", mantissa, exponent))
		}
	}
	return cases
}

func wellFormed(random *rand.Rand) string {
	return number(random) + pick(random, suffixes)
}

// nearLimit stays close to where a rule changes: powers of 2 and 10, one less, one more, a fraction more.
func nearLimit(random *rand.Rand) string {
	text := fmt.Sprint(uint64(1) << random.IntN(64))
	switch random.IntN(4) {
	case 0:
		text = fmt.Sprint(uint64(math.MaxInt64) - 3 + random.Uint64N(7))
	case 1:
		text = fmt.Sprint((uint64(1) << random.IntN(63)) - 1 + random.Uint64N(3))
	case 2:
		text = "1" + strings.Repeat("0", random.IntN(24))
	}
	if random.IntN(3) == 0 {
		text += "." + digits(random, 1+random.IntN(12))
	}
	return sign(random) + text + pick(random, suffixes)
}

func exponential(random *rand.Rand) string {
	exponent := random.IntN(61) - 30
	if random.IntN(10) == 0 {
		exponent = random.IntN(601) - 300
	}
	style := []string{"e%d", "E%d", "e%+d", "E%+d", "e%03d"}[random.IntN(5)]
	return number(random) + fmt.Sprintf(style, exponent)
}

func mutated(random *rand.Rand) string {
	text := wellFormed(random)
	if random.IntN(3) == 0 {
		text = exponential(random)
	}
	for changes := 1 + random.IntN(2); changes > 0; changes-- {
		at := random.IntN(len(text) + 1)
		letter := string(alphabet[random.IntN(len(alphabet))])
		if random.IntN(12) == 0 {
			letter = pick(random, []string{" ", "_", ",", "\x00", "é", "g", "B", "/", ":", "\u0660"})
		}
		switch {
		case random.IntN(2) == 0 || at == len(text):
			text = text[:at] + letter + text[at:]
		case random.IntN(2) == 0:
			text = text[:at] + text[at+1:]
		default:
			text = text[:at] + letter + text[at+1:]
		}
	}
	return strings.ToValidUTF8(text, "?")
}

func noise(random *rand.Rand) string {
	var text strings.Builder
	for length := random.IntN(8); length >= 0; length-- {
		text.WriteByte(alphabet[random.IntN(len(alphabet))])
	}
	return text.String()
}

func number(random *rand.Rand) string {
	whole := digits(random, 1+random.IntN(6))
	if random.IntN(4) == 0 {
		whole = digits(random, 1+random.IntN(24))
	}
	switch random.IntN(10) {
	case 0:
		whole = strings.Repeat("0", random.IntN(4)) + whole
	case 1:
		whole += strings.Repeat("0", random.IntN(8))
	case 2:
		whole = "0"
	}
	if random.IntN(2) == 0 {
		whole += "." + digits(random, random.IntN(4))
	} else if random.IntN(4) == 0 {
		whole += "." + strings.Repeat("0", random.IntN(9)) + digits(random, random.IntN(12))
	}
	return sign(random) + whole
}

func digits(random *rand.Rand, count int) string {
	var text strings.Builder
	for ; count > 0; count-- {
		text.WriteByte(byte('0' + random.IntN(10)))
	}
	return text.String()
}

func sign(random *rand.Rand) string {
	return pick(random, []string{"", "", "", "", "", "", "-", "+"})
}

func pick(random *rand.Rand, from []string) string {
	return from[random.IntN(len(from))]
}
