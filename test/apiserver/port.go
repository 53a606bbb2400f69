package apiserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort is one of 127.0.0.1's that nobody listens on just now. It is below those that the kernel
// gives to clients, of which one may be somebody's in the next moment.
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
