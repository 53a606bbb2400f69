package guest_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/nodevirt/nodevirt/test/guest"
	"github.com/nodevirt/nodevirt/test/needs"
	"github.com/nodevirt/nodevirt/test/wait"
)

// patience is for a whole Debian under emulation on a machine that is busy with other tests.
const patience = 10 * time.Minute

// Without a seed cloud-init stays off, and the network comes up by itself.
func TestDebianWithoutSeed(t *testing.T) {
	needs.Parts(t, "root, QEMU, a Debian mirror")
	disk, err := guest.Debian(t.Context(), guest.Options{Log: os.Stderr})
	assert.NilError(t, err)
	m := start(t, 256, drive(disk, "qcow2", "snapshot=on")...)
	var nics []struct {
		Name      string
		Addresses []struct {
			Address string `json:"ip-address"`
		} `json:"ip-addresses"`
	}
	m.waitFor("debian login: root", patience)
	wait.Until(t, "an address from DHCP", func() bool {
		return strings.Contains(m.askAgent("guest-network-get-interfaces", &nics), "10.0.2.15")
	})
}

// askAgent runs a command of the guest agent, again until the agent answers, and returns the whole
// answer.
func (m *machine) askAgent(command string, result any) string {
	m.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Second) {
		line, err := m.tryAgent(command)
		if err != nil {
			continue
		}
		answer := struct{ Return any }{result}
		if err := json.Unmarshal([]byte(line), &answer); err != nil || strings.Contains(line, `"error"`) {
			m.t.Fatalf("%s: %v: %s", command, err, line)
		}
		return line
	}
	m.t.Fatalf("%s: the agent does not answer", command)
	return ""
}

// tryAgent asks once. What the agent still answers to earlier attempts is skipped, by a number that
// only this one knows.
func (m *machine) tryAgent(command string) (string, error) {
	conn, err := net.Dial("unix", m.agent)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	mark := time.Now().UnixMilli()
	if _, err := fmt.Fprintf(conn, `{"execute":"guest-sync","arguments":{"id":%d}}`+"\n", mark); err != nil {
		return "", err
	}
	answers := bufio.NewReader(conn)
	for line := ""; line != fmt.Sprintf(`{"return": %d}`+"\n", mark); {
		if line, err = answers.ReadString('\n'); err != nil {
			return "", err
		}
	}
	if _, err := fmt.Fprintf(conn, `{"execute":%q}`+"\n", command); err != nil {
		return "", err
	}
	return answers.ReadString('\n')
}
