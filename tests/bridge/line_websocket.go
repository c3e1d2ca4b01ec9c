package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/coder/websocket"
)

// webLine is either end of a WebSocket session.
type webLine struct {
	conn *websocket.Conn
	code websocket.StatusCode // it is ended with
}

func (l webLine) send(m message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return l.conn.Write(context.Background(), websocket.MessageText, data)
}

func (l webLine) receive() (message, error) {
	var m message
	_, data, err := l.conn.Read(context.Background())
	if err != nil {
		switch websocket.CloseStatus(err) {
		case websocket.StatusNormalClosure, websocket.StatusGoingAway:
			return m, io.EOF
		}
		return m, err
	}
	return m, json.Unmarshal(data, &m)
}

func (l webLine) end() { _ = l.conn.Close(l.code, "") }

func (l webLine) drop() { _ = l.conn.CloseNow() }

// direct takes no proxy from the environment.
var direct = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// dialWebSocket returns once the bridge has taken the session. longest bounds that, not the session.
func dialWebSocket(longest context.Context, host string, port int) (userEnd, error) {
	address := "ws://" + net.JoinHostPort(host, strconv.Itoa(port)) + "/session"
	conn, response, err := websocket.Dial(longest, address, &websocket.DialOptions{HTTPClient: direct})
	if err != nil {
		if response != nil {
			text, _ := io.ReadAll(response.Body)
			return nil, fmt.Errorf("HTTP %d: %s", response.StatusCode, text)
		}
		return nil, err
	}
	return webLine{conn, websocket.StatusNormalClosure}, nil
}
