package cli

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 512 << 20: "512 MiB", 3 << 40: "3 TiB", 1<<63 - 1: "8 EiB",
	} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, not %q", n, got, want)
		}
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", 12*time.Minute + 3*time.Second: "12m",
		90 * time.Minute: "1h30m", 76 * time.Hour: "3d4h",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%s) = %q, not %q", d, got, want)
		}
	}
}

func TestATableKeepsAStrangersTextInItsCell(t *testing.T) {
	var b bytes.Buffer
	if err := Table(&b, [][]string{{"NAME", "STATE"}, {"a\tb\nc\x1b[31m", "ä"}}); err != nil {
		t.Fatal(err)
	}
	const want = "NAME         STATE\na?b?c?[31m   ä\n"
	if b.String() != want {
		t.Errorf("got\n%qwant\n%q", b.String(), want)
	}
}

func TestEnding(t *testing.T) {
	cause := errors.New("it broke")
	for _, c := range []struct {
		err     error
		code    int
		message string
	}{
		{nil, 0, ""},
		{cause, 1, "it broke"},
		{&ExitError{Code: 7}, 7, ""},
		{fmt.Errorf("run: %w", &ExitError{Code: 137, Err: cause}), 137, "run: it broke"},
		{errors.Join(&ExitError{Code: 137, Err: cause}, errors.New("and that")), 137, "it broke\nand that"},
	} {
		if code, message := Ending(c.err); code != c.code || message != c.message {
			t.Errorf("Ending(%v) = %d, %q, not %d, %q", c.err, code, message, c.code, c.message)
		}
	}
}

func TestAPlainErrorHasNoWordsOfGRPC(t *testing.T) {
	err := Plain(status.Error(codes.NotFound, "no such pod"))
	if err.Error() != "no such pod" || !NotFound(fmt.Errorf("ask: %w", err)) {
		t.Errorf("got %v, not found: %t", err, NotFound(err))
	}
	if other := errors.New("x"); !errors.Is(Plain(other), other) || Plain(nil) != nil {
		t.Error("an error that is not gRPC's was changed")
	}
}

func TestDialNamesWhatIsMissing(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://x":                  `runtime endpoint "http://x": want unix:///PATH`,
		"unix:///nowhere/shim.sock": "no shim at /nowhere/shim.sock",
	} {
		if _, err := Dial(t.Context(), endpoint); err == nil || !bytes.Contains([]byte(err.Error()), []byte(want)) {
			t.Errorf("Dial(%q): %v, not %q", endpoint, err, want)
		}
	}
}
