package apiserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of 127.0.0.1 on which no process listens. It is below the kernel's range
// for clients, which could take a port of that range in the next moment.
func FreePort() (int, error) {
	const first, number, tries = 20_000, 12_000, 100
	var err error
	for range tries {
		port := first + rand.IntN(number)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("find a free port: %w", err)
}
