package supervisor

import (
	"io"
	"net"
	"sync"
)

// forward connects each client of a listener, which may belong to another network namespace, to an
// address in this one. A client whose connection can't be made finds its own closed.
func forward(from net.Listener, to string) {
	for {
		client, err := from.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial("tcp", to)
			if err != nil {
				return
			}
			defer server.Close()
			splice(client.(*net.TCPConn), server.(*net.TCPConn))
		}()
	}
}

// splice copies both ways until both are at their ends. An error is an end too: either side sees it
// by what it gets.
func splice(a, b *net.TCPConn) {
	var both sync.WaitGroup
	pass := func(from, to *net.TCPConn) {
		_, _ = io.Copy(to, from)
		_ = to.CloseWrite()
	}
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
}
