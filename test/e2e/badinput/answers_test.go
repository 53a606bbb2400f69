package badinput

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/golden"
)

// answers are what the cases of a group are answered, by name, as in testdata/GROUP.golden:
//
//	name of the case
//		text, which may have
//		several lines
type answers struct {
	file  string // below testdata
	texts map[string]string
}

func readAnswers(t *testing.T, group string) *answers {
	t.Helper()
	a := &answers{file: group + ".golden", texts: map[string]string{}}
	text, err := os.ReadFile(golden.Path(a.file))
	if err != nil && (!golden.FlagUpdate() || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	name := ""
	for line := range strings.Lines(string(text)) {
		if said, ok := strings.CutPrefix(line, "\t"); ok {
			a.texts[name] += said
		} else {
			name = strings.TrimSpace(line)
		}
	}
	return a
}

// check compares what a call said with what the case should be answered.
func (a *answers) check(t *testing.T, c badCase, err error) {
	t.Helper()
	got := status.Convert(err)
	if got.Code() != c.code {
		t.Errorf("code %v, want %v", got.Code(), c.code)
	}
	if c.code == codes.OK {
		return
	}
	text := mask(got.Message()) + "\n"
	if golden.FlagUpdate() {
		a.texts[c.name] = text
	} else if want := a.texts[c.name]; text != want {
		t.Errorf("%s\nwant (%s, which -update renews)\n%s", text, golden.Path(a.file), want)
	}
}

// write brings testdata up to date, for -update.
func (a *answers) write(t *testing.T) {
	t.Helper()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a.texts)) {
		said := strings.TrimSuffix(a.texts[name], "\n")
		fmt.Fprintf(&b, "%s\n\t%s\n", name, strings.ReplaceAll(said, "\n", "\n\t"))
	}
	golden.Assert(t, b.String(), a.file)
}

// mask replaces what is new in each run.
func mask(text string) string {
	for _, m := range []struct{ what, by string }{
		{`cni-[0-9a-f-]{36}`, "NETNS"},
		{`extract-[0-9]+-\S{4} `, "extract-KEY "},
		{`containerd-mount[0-9]+`, "MOUNT"},
		{`nodevirt:[0-9a-f]{32}`, "nodevirt:TARGET"},
		{`[0-9a-f]{64}`, "ID"},
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`default_pod_[0-9a-f]{12}`, "DOMAIN"},
		{`/tmp/nodevirt-[0-9]+`, "DIR"},
		{`[^ ]*/dnsmasq:`, "DNSMASQ:"},
		{`json[0-9]+`, "jsonN"},
	} {
		text = regexp.MustCompile(m.what).ReplaceAllString(text, m.by)
	}
	return text
}
