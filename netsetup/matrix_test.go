package netsetup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotest.tools/v3/golden"

	"github.com/nodevirt/nodevirt/test/needs"
)

// record has what the cells of the matrix have answered, a line each: the network, the families, the binding, and an
// answer for each of matrixQuestions. docs/networks.md shows it.
const record = "testdata/matrix.tsv"

// Answers of cells. A refusal has its reason behind it.
const (
	answerYes     = "yes"
	answerNone    = "none" // pods without VMs have no such thing on that network
	answerRefused = "refused: "
)

// fixed is the condition of a VM with its pod's address, whose pod on another node gets another one.
const fixed = answerRefused + "cannot migrate VMI which does not use masquerade to connect to the pod network"

// question is what a cell is asked.
type question struct {
	name string
	// ask fails the test if the answer is another than the one that it returns.
	ask func(t *testing.T, c *cell) (answer string)
}

func matrixQuestions() []question {
	return []question{
		{"pod", askPods}, {"Service", askService}, {"own Service", askOwnService}, {"probe", askProbe},
		{"policy", askPolicy}, {"plug and unplug", askPlug}, {"migration", askMove},
	}
}

// TestMatrix asks guests on each kind of network all questions, with each binding and the families of addresses. A change
// of an answer, and a new one, must be recorded: go test ./netsetup -tags slow -run TestMatrix -update
func TestMatrix(t *testing.T) {
	needs.Parts(t, "root, CNI plug-ins")
	recorded := readRecord(t)
	var lines []string
	for _, kind := range networkKinds() {
		for _, families := range matrixFamilies() {
			for _, binding := range []Binding{Bridge, Masquerade} {
				key := strings.Join([]string{kind.name, strings.Trim(fmt.Sprint(families), "[]"), string(binding)}, "\t")
				line := key
				t.Run(strings.ReplaceAll(key, "\t", "/"), func(t *testing.T) {
					line += "\t" + strings.Join(answers(t, kind, families, binding), "\t")
					if want := recorded[key]; want != line && !golden.FlagUpdate() {
						t.Errorf("the answers are\n%s\nand %s has\n%s", line, record, want)
					}
				})
				lines = append(lines, line)
			}
		}
	}
	if !golden.FlagUpdate() || t.Failed() {
		return
	}
	for _, line := range lines { // a part of the matrix changes its own lines alone
		recorded[strings.Join(strings.SplitN(line, "\t", 4)[:3], "\t")] = line
	}
	writeRecord(t, recorded)
}

// readRecord returns the recorded lines by their network, families and binding.
func readRecord(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(record)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		if parts := strings.SplitN(line, "\t", 4); len(parts) == 4 && !strings.HasPrefix(line, "network\t") {
			all[strings.Join(parts[:3], "\t")] = line
		}
	}
	return all
}

// writeRecord writes the recorded lines in the matrix's order.
func writeRecord(t *testing.T, recorded map[string]string) {
	t.Helper()
	text := "network\tfamilies\tbinding"
	for _, q := range matrixQuestions() {
		text += "\t" + q.name
	}
	text += "\n"
	for _, kind := range networkKinds() {
		for _, families := range []string{"4", "6", "4 6"} {
			for _, binding := range []Binding{Bridge, Masquerade} {
				text += recorded[strings.Join([]string{kind.name, families, string(binding)}, "\t")] + "\n"
			}
		}
	}
	if err := os.WriteFile(filepath.Clean(record), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cell is a guest on a network, and another pod there.
type cell struct {
	*lab
	binding Binding
	vm      site
	peer    site
	guest   *testGuest
}

// answers starts a guest, and returns its answers in the questions' order.
func answers(t *testing.T, kind networkKind, families []int, binding Binding) []string {
	t.Helper()
	l := newLab(t, kind, families...)
	link := podInterface
	if kind.static && binding == Bridge {
		link = "net1" // of Multus: the pod's own network has addresses
	}
	c := &cell{lab: l, binding: binding, vm: l.add(t, link), peer: l.add(t, link)}
	if kind.static {
		l.command(t, c.peer.ns, "addr add "+c.peer.own(4).String()+" dev "+link, "addr add "+c.peer.own(6).String()+" dev "+link+" nodad")
	}
	if _, err := l.setup.Plan(t.Context(), idA, c.pod(c.vm)); err != nil {
		_, why, _ := strings.Cut(err.Error(), c.vm.ns+": ")
		return slices.Repeat([]string{answerRefused + why}, len(matrixQuestions()))
	}
	before := state(t, c.vm.ns)
	c.guest = l.start(t, idA, c.pod(c.vm))
	c.settle(t, c.guest, c.vm)
	serveIn(t, c.guest.ns, ":80", "guest")
	serveIn(t, c.guest.ns, ":81", "guest")
	serveIn(t, c.peer.ns, ":80", "peer")
	serveIn(t, c.peer.ns, ":81", "peer")
	started := c.guest.plan
	var all []string
	for _, q := range matrixQuestions() {
		all = append(all, q.ask(t, c))
	}
	for range 2 {
		l.undo(t, throughJSON(t, started))
		same(t, "pod", before, state(t, c.vm.ns))
	}
	return all
}

// pod returns what the guest's network is made in.
func (c *cell) pod(s site) Pod {
	return Pod{Netns: s.ns, Interfaces: []Interface{{Card: "card", Name: s.link, Binding: c.binding}}}
}
