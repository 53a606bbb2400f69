package console

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// record is one line of a log, read as k8s.io/cri-client/pkg/logs does it.
type record struct {
	stamp   time.Time
	partial bool
	text    string
}

func parse(t *testing.T, log []byte) []record {
	t.Helper()
	var records []record
	for line := range bytes.Lines(log) {
		fields := bytes.SplitN(line, []byte{' '}, 4)
		if len(fields) != 4 || !bytes.HasSuffix(line, []byte{'\n'}) {
			t.Fatalf("not a record: %q", line)
		}
		stamp, err := time.Parse("2006-01-02T15:04:05.999999999Z07:00", string(fields[0]))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		tag := string(fields[2])
		if string(fields[1]) != "stdout" || (tag != "F" && tag != "P") {
			t.Fatalf("stream or tag of %q", line)
		}
		text := strings.TrimSuffix(string(fields[3]), "\n")
		if len(text) > maxLine {
			t.Fatalf("a record of %d bytes", len(text))
		}
		records = append(records, record{stamp, tag == "P", text})
	}
	return records
}

// printed is what a reader of the log sees.
func printed(t *testing.T, log []byte) string {
	t.Helper()
	var text strings.Builder
	for _, r := range parse(t, log) {
		text.WriteString(r.text)
		if !r.partial {
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// testConsole makes the files of a console in a folder of the test's own.
func testConsole(t *testing.T) Console {
	t.Helper()
	dir := t.TempDir()
	c := Console{
		ID:       "vm1",
		Raw:      filepath.Join(dir, "console.raw"),
		Position: filepath.Join(dir, "console.pos"),
		Log:      filepath.Join(dir, "pods", "vm1", "0.log"),
	}
	if err := os.WriteFile(c.Raw, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// guest appends to a raw file as QEMU does.
func guest(t *testing.T, c Console) *os.File {
	t.Helper()
	file, err := os.OpenFile(c.Raw, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func write(t *testing.T, file *os.File, text string) {
	t.Helper()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	write(t, file, text)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
