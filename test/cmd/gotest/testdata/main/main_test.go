package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	m.Run()
	fmt.Println("after all tests: something is left")
	for i := range 1000 {
		fmt.Println("log line", i)
	}
	fmt.Println("the last word")
	os.Exit(1)
}

func TestGood(t *testing.T) {}
