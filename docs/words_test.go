package docs_test

import (
	"testing"
)

// piece is a text, and where its first line is.
type piece struct {
	file string
	line int
	text string
}

// TestWords checks every text that a user or a developer reads against testdata/words.yaml.
func TestWords(t *testing.T) {
	list := readWords(t)
	source := readSource(t)
	for _, scope := range []struct {
		name     string
		findings []string
	}{
		{"pages", list.check(prose(t))},
		{"limits", list.limits(t)},
		{"help", list.check(source.help)},
		{"errors", list.check(source.errors)},
		{"logs", list.check(source.logs)},
		{"comments", append(list.check(source.comments), source.unnamed...)},
		{"names", list.names(source.files)},
	} {
		t.Run(scope.name, func(t *testing.T) {
			for _, f := range scope.findings {
				t.Error(f)
			}
		})
	}
}

// TestWordList checks that each word is found, and its allowed phrases are not.
func TestWordList(t *testing.T) {
	list := readWords(t)
	for text, want := range map[string]int{
		"The shim logs the cause.":                        0,
		"A name with hasty-heedless parts.":               0,
		"It tells\nthe kubelet.":                          1,
		"The letters ID stands for the container.":        0,
		"The cluster stands.":                             1,
		"It runs once\n\tmore, of its own.":               2,
		"The guest is to be told.":                        2,
		"The node takes it back; nobody\nlooks.":          2,
		"A pause. Who pays for it?":                       1,
		"Who pays for it":                                 1,
		"- That of the pod":                               1,
		"Ask the person\nWho wrote it, by libvirt's hand": 1,
	} {
		if got := list.check([]piece{{"text", 1, text}}); len(got) != want {
			t.Errorf("%q: %d findings, want %d: %v", text, len(got), want, got)
		}
	}
}
