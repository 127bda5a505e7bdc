// Load asks an admission webhook the way an API server does: HTTP/1.1 with keep-alive over TLS
// 1.3, at most 25 idle connections, no retry of a call that broke, up to 10 retries where the
// answer says Retry-After (kubernetes/client-go, rest/with_retry.go).
//
// It takes one JSON command a line on standard input and answers each by one line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log"
	"os"
)

type command struct {
	Do          string   `json:"do"` // closed, open, steady, endpoints, renew, stop
	URL         string   `json:"url"`
	Authorities string   `json:"authorities"` // file of PEM
	ServerName  string   `json:"server_name"`
	Body        string   `json:"body"`  // file
	UID         string   `json:"uid"`   // what stands in the body for the request's uid
	Marks       []string `json:"marks"` // other texts in it that differ from request to request
	Status      int      `json:"status"`
	PID         int      `json:"pid"` // of the server, for its CPU time
	Connections int      `json:"connections"`
	WarmUp      int      `json:"warm_up"`
	Requests    int      `json:"requests"`
	Fresh       bool     `json:"fresh"` // a new connection for each request
	Rate        float64  `json:"rate"`  // requests a second
	DurationS   float64  `json:"duration_s"`
	IdleS       float64  `json:"idle_s"` // how long an idle connection is kept
	Endpoints   []string `json:"endpoints"`
}

func main() {
	log.SetFlags(0)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	var running *steady
	for lines.Scan() {
		var asked command
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		answer, err := do(&asked, &running)
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}

func do(asked *command, running **steady) (any, error) {
	switch asked.Do {
	case "closed":
		return closedLoop(asked)
	case "open":
		return openLoop(asked)
	case "steady":
		begun, err := startSteady(asked)
		*running = begun
		return struct{}{}, err
	case "endpoints", "renew", "stop":
		if *running == nil {
			return nil, fmt.Errorf("%s: nothing is running", asked.Do)
		}
		return (*running).do(asked)
	}
	return nil, fmt.Errorf("unknown command %q", asked.Do)
}
