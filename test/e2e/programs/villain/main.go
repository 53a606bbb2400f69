// Villain sends the frames that are on its standard input, one a line as hexadecimal digits, from a
// machine's first network card, past the machine's own network stack. It says how many it sent.
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"log"
	"net"
	"os"
	"syscall"
)

func main() {
	card, err := net.InterfaceByName("eth0")
	if err != nil {
		log.Fatal(err)
	}
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW, 0)
	if err != nil {
		log.Fatal("open a packet socket: ", err)
	}
	sent := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); sent++ {
		frame, err := hex.DecodeString(lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		if err := syscall.Sendto(fd, frame, 0, &syscall.SockaddrLinklayer{Ifindex: card.Index}); err != nil {
			log.Fatal("send a frame: ", err)
		}
	}
	fmt.Println(sent)
}
