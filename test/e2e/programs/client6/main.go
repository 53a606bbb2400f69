// Client6 gets an address by DHCPv6 (RFC 8415) for a machine's first network card, under the DUID that
// is on its standard input, sets it, and prints it. It asks in one exchange (rapid commit), again each second for a while.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"
)

// Message types and options.
const (
	solicit, reply = 1, 7

	clientID, identity, address, elapsed, rapidCommit = 1, 3, 5, 8, 14
)

func main() {
	duid, err := io.ReadAll(os.Stdin)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := net.ListenPacket("udp6", "[::%eth0]:546")
	if err != nil {
		log.Fatal(err)
	}
	message := []byte{solicit, 1, 2, 3}
	for _, o := range []struct {
		code  uint16
		value string
	}{{clientID, string(duid)}, {identity, string(make([]byte, 12))}, {elapsed, "\x00\x00"}, {rapidCommit, ""}} {
		message = binary.BigEndian.AppendUint16(message, o.code)
		message = binary.BigEndian.AppendUint16(message, uint16(len(o.value)))
		message = append(message, o.value...)
	}
	to := &net.UDPAddr{IP: net.ParseIP("ff02::1:2"), Port: 547, Zone: "eth0"}
	var failed error
	for range 25 {
		if _, failed = conn.WriteTo(message, to); failed != nil { // no link-local address yet
			time.Sleep(time.Second)
			continue
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			log.Fatal(err)
		}
		answer := make([]byte, 1500)
		n, _, err := conn.ReadFrom(answer)
		if err != nil || n < 4 || answer[0] != reply {
			continue
		}
		if found := option(option(answer[4:n], identity, 12), address, 0); len(found) >= 16 {
			got := netip.AddrFrom16([16]byte(found[:16]))
			if out, err := exec.Command("/bin/ip", "address", "replace", got.String()+"/128", "dev", "eth0").CombinedOutput(); err != nil {
				log.Fatalf("set the address: %v: %s", err, out)
			}
			fmt.Println(got)
			return
		}
		log.Fatalf("an answer without an address: %q", bytes.TrimRight(answer[:n], "\x00"))
	}
	log.Fatal("no answer ", failed)
}

// option is the value of the first option of a kind, from its byte skip on.
func option(data []byte, code uint16, skip int) []byte {
	for len(data) >= 4 {
		end := min(4+int(binary.BigEndian.Uint16(data[2:])), len(data))
		if binary.BigEndian.Uint16(data) == code && end >= 4+skip {
			return data[4+skip : end]
		}
		data = data[end:]
	}
	return nil
}
