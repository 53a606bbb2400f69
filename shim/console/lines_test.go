package console

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 2, 13, 4, 5, 6_000_000, time.FixedZone("CET", 3600))

func TestLines(t *testing.T) {
	const f, p = "2026-01-02T12:04:05.006000000Z stdout F ", "2026-01-02T12:04:05.006000000Z stdout P "
	long := strings.Repeat("x", maxLine)
	const pause = "\xffpause" // between two feeds: a second of silence
	tests := map[string]struct {
		feeds []string
		want  string
	}{
		"a line":              {[]string{"hello\n"}, f + "hello\n"},
		"empty lines":         {[]string{"\n\r\n"}, f + "\n" + f + "\n"},
		"a line in pieces":    {[]string{"he", "llo", "\n"}, f + "hello\n"},
		"CR LF":               {[]string{"a\r\nb\r", "\n"}, f + "a\n" + f + "b\n"},
		"CR elsewhere":        {[]string{"10%\r20%\r\r\n"}, f + "10%\r20%\r\n"},
		"noise":               {[]string{"\x00\xff\xc3( \x1b[0m\n"}, f + "\x00\xff\xc3( \x1b[0m\n"},
		"no end":              {[]string{"login: "}, ""},
		"a prompt":            {[]string{"login: ", pause}, p + "login: \n"},
		"a prompt, continued": {[]string{"login: ", pause, "root\r\n"}, p + "login: \n" + f + "root\n"},
		"a prompt, ended":     {[]string{"login: ", pause, "\r\n"}, p + "login: \n" + f + "\n"},
		"CR before a pause":   {[]string{"50%\r", pause, "\n"}, p + "50%\n" + f + "\n"},
		"silence":             {[]string{pause, "a\n", pause, pause}, f + "a\n"},
		"just fits":           {[]string{long + "\n"}, f + long + "\n"},
		"just fits, CR LF":    {[]string{long + "\r", "\n"}, f + long + "\n"},
		"one too long":        {[]string{long + "y\n"}, p + long + "\n" + f + "y\n"},
		"one CR too long":     {[]string{long + "\r", "y\n"}, p + long + "\n" + f + "\ry\n"},
		"three records":       {[]string{long + long + "y", "\r\n"}, p + long + "\n" + p + long + "\n" + f + "y\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := lines{max: maxLine}
			var out []byte
			for _, feed := range test.feeds {
				if feed == pause {
					out = l.flush(out, noon)
				} else {
					out = l.feed(out, []byte(feed), noon)
				}
			}
			if string(out) != test.want {
				t.Errorf("got  %q\nwant %q", out, test.want)
			}
		})
	}
}

// FuzzLines cuts an input in three, with silence or not in between. Whatever the cuts, a reader
// gets the input back, and without silence always the same records. Records are short here, so that
// inputs can be.
func FuzzLines(f *testing.F) {
	const short = 8
	f.Add([]byte("a\r\n\x00\xff b\n\nlogin: "), 2, 9, true)
	f.Add(bytes.Repeat([]byte("x\r"), short), short, short+1, false)
	f.Add([]byte("12345678\r\n"), short, short+1, true)
	f.Add([]byte("12345678\rx1234567\r\n"), short, short+1, false)
	f.Fuzz(func(t *testing.T, input []byte, i, j int, silence bool) {
		i = min(max(i, 0), len(input))
		j = min(max(j, i), len(input))
		l := lines{max: short}
		var out []byte
		for _, piece := range [][]byte{input[:i], input[i:j], input[j:]} {
			out = l.feed(out, piece, noon)
			if silence {
				out = l.flush(out, noon)
			}
			if len(l.pending) > short+1 {
				t.Fatalf("%q is pending", l.pending)
			}
		}
		out = l.flushAll(out, noon)
		if want := string(bytes.ReplaceAll(input, []byte("\r\n"), []byte("\n"))); printed(t, out) != want {
			t.Errorf("a reader gets %q, want %q", printed(t, out), want)
		}
		whole := lines{max: short}
		if want := whole.flushAll(whole.feed(nil, input, noon), noon); !silence && !bytes.Equal(out, want) {
			t.Errorf("in pieces %q, at once %q", out, want)
		}
	})
}
