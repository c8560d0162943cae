#!/usr/bin/env python3
"""Promises of gpusock-top: it sees an echo server's sockets with the right bytes, notices that it stops, and that it ends.

usage: test_top.py GPUSOCK_TOP ECHO_SERVER

Exit status: 0 kept, 1 broken, 2 misuse, 77 the programs cannot run here (they need a GPU).
"""
import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

LIMIT_S = 120  # a program that takes longer hangs
SENT = b"x" * 12345


class Top(unittest.TestCase):
    top = server = ""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpusock-top-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.environment = dict(os.environ, GPUSOCK_OBSERVE=str(self.folder))

    def start_server(self, link="tcp"):
        process = subprocess.Popen([self.server, f"127.0.0.1:0,link={link}"], stdout=subprocess.PIPE, text=True,
                                   env=self.environment)
        self.addCleanup(self.end, process)
        port = int(process.stdout.readline().split(",")[0].rsplit(":", 1)[1])
        return process, port

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
            process.wait(LIMIT_S)
        process.stdout.close()

    @staticmethod
    def kill(process):
        if process.poll() is None:
            process.kill()

    def call(self, *arguments):
        return subprocess.run([self.top, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env=self.environment)

    def contexts(self, *arguments):
        done = self.call("--once", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["contexts"]

    def echo(self, port):
        client = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self.addCleanup(client.close)
        client.sendall(SENT)
        got = b""
        while len(got) < len(SENT):
            got += client.recv(1 << 16)
        return client

    def test_once_shows_a_server_and_its_clients_with_the_bytes_that_they_sent(self):
        server, port = self.start_server()
        clients = [self.echo(port) for _ in range(3)]
        (context,) = self.contexts("--wait", "60")
        self.assertEqual(context["pid"], server.pid)
        self.assertEqual(context["program"], "echo_server")
        self.assertFalse(context["stalled"])
        self.assertEqual(context["connections"], 3)
        self.assertEqual(context["tcp_rx_bytes"], 3 * len(SENT))
        (listener,) = [entry for entry in context["sockets"] if entry["state"] == "listening"]
        self.assertEqual(listener["local"], f"127.0.0.1:{port}")
        self.assertIsNone(listener["peer"])
        connected = [entry for entry in context["sockets"] if entry["state"] == "connected"]
        self.assertEqual({entry["peer"] for entry in connected}, {"%s:%d" % client.getsockname() for client in clients})
        for entry in connected:
            self.assertEqual((entry["link"], entry["local"]), ("tcp", f"127.0.0.1:{port}"))
            self.assertEqual((entry["tx_bytes"], entry["rx_bytes"]), (len(SENT), len(SENT)))
            self.assertEqual((entry["tx_ring_fill"], entry["rx_ring_fill"]), (0, 0))
            self.assertEqual((entry["tx_bytes_per_s"], entry["rx_bytes_per_s"]), (0, 0))
            self.assertGreater(entry["age_ns"], 0)

    def test_the_table_has_a_line_for_each_socket(self):
        server, port = self.start_server()
        client = self.echo(port)
        done = self.call("--once", "--wait", "60")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"echo_server  pid {server.pid}", done.stdout)
        (line,) = [line for line in done.stdout.splitlines() if "%s:%d" % client.getsockname() in line]
        for word in ("connected", "tcp", "12K"):
            self.assertIn(word, line.split())

    def test_info_says_how_tcp_connections_are(self):
        _, port = self.start_server()
        self.echo(port)
        (context,) = self.contexts("--wait", "60", "--info")
        for entry in context["sockets"]:
            if entry["state"] == "listening":
                self.assertIsNone(entry["tcp"])
            else:
                self.assertGreater(entry["tcp"]["round_trip_us"], 0)
                self.assertGreater(entry["tcp"]["congestion_window"], 0)
                self.assertGreaterEqual(entry["tcp"]["retransmits"], 0)
        for option in (["--info"], ["--sort", "retransmits"]):
            self.assertRegex(self.call("--once", "--wait", "60", *option).stdout, r"rtt \d+\.\d{3}\+-\d+\.\d{3} ms  retrans \d+  cwnd \d+x\d+ B")

    def terminal_of_a_busy_server(self):
        """A server with 40 clients is started. Both ends of a terminal of 24 rows and 80 columns; the caller closes the second one."""
        _, port = self.start_server()
        for _ in range(40):
            self.addCleanup(socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S).close)
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        return ours, theirs

    def test_a_terminal_of_80_columns_and_24_rows_holds_what_it_shows(self):
        ours, theirs = self.terminal_of_a_busy_server()
        with subprocess.Popen([self.top, "--wait", "60", "--sort", "rate"], stdout=theirs, env=self.environment) as top:
            os.close(theirs)
            shown = table = ""
            while "more sockets" not in table:  # the clients may come after the first table
                shown += os.read(ours, 1 << 16).decode()
                tables = shown.split("\033[J")  # each ends so
                table, shown = (tables[-2] if len(tables) > 1 else ""), tables[-1]
            top.send_signal(signal.SIGINT)
            self.assertEqual(top.wait(LIMIT_S), 0)
        lines = table.removeprefix("\033[H").replace("\033[K", "").removesuffix("\r\n").split("\r\n")
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_keys_scroll_and_q_ends_with_the_terminal_as_it_was(self):
        ours, theirs = self.terminal_of_a_busy_server()
        self.addCleanup(os.close, theirs)
        before = termios.tcgetattr(theirs)
        # A session of its own, whose terminal this is: only a terminal's foreground may read keys.
        with subprocess.Popen(["setsid", "--ctty", "--wait", self.top, "--wait", "60"], stdin=theirs, stdout=theirs,
                              env=self.environment) as top:
            self.addCleanup(self.kill, top)
            shown = ""
            def until(text):
                nonlocal shown
                while text not in shown:
                    shown += os.read(ours, 1 << 16).decode()
                shown = shown.split(text, 1)[1]
            until("41 sockets")
            until("more sockets")
            os.write(ours, b"\033[F")
            until("(lines ")
            until(" to 43 of 43)")  # an empty line, the context, its listener and the clients
            os.write(ours, b"\033[H")
            until("more sockets")
            os.write(ours, b"q")
            self.assertEqual(top.wait(LIMIT_S), 0)
        self.assertEqual(termios.tcgetattr(theirs), before)

    def test_a_stopped_process_is_stalled_and_one_that_goes_on_is_not(self):
        server, port = self.start_server()
        self.echo(port)
        self.assertFalse(self.contexts("--wait", "60")[0]["stalled"])
        server.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, server.pid, os.WSTOPPED)  # without taking its exit status
        (context,) = self.contexts("--wait", "1.5")
        self.assertTrue(context["stalled"])
        self.assertGreaterEqual(context["silent_ns"], 1_500_000_000)
        self.assertIn("STALLED", self.call("--once", "--wait", "1.5").stdout)
        server.send_signal(signal.SIGCONT)
        self.assertFalse(self.contexts("--wait", "60")[0]["stalled"])

    def test_a_process_that_ended_or_was_killed_is_gone_with_its_page(self):
        for how in (signal.SIGTERM, signal.SIGKILL):
            with self.subTest(how=how):
                server, port = self.start_server()
                self.echo(port)
                self.assertEqual(len(self.contexts("--wait", "60")), 1)
                server.send_signal(how)
                server.wait(LIMIT_S)
                self.assertEqual(len(list(self.folder.iterdir())), 1 if how == signal.SIGKILL else 0)
                self.assertEqual(self.contexts(), [])
                self.assertEqual(list(self.folder.iterdir()), [])

    def test_pid_chooses_a_process(self):
        first, _ = self.start_server()
        second, _ = self.start_server()
        self.assertEqual({context["pid"] for context in self.contexts("--wait", "60")}, {first.pid, second.pid})
        (context,) = self.contexts("--wait", "60", "--pid", str(second.pid))
        self.assertEqual(context["pid"], second.pid)

    def test_live_json_has_a_line_for_each_look_and_ends_cleanly_on_signals(self):
        _, port = self.start_server()
        client = self.echo(port)
        for how in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([self.top, "--json", "--interval", "0.1", "--wait", "60"], stdout=subprocess.PIPE, text=True,
                                  env=self.environment) as top:
                looks = [json.loads(top.stdout.readline()) for _ in range(3)]
                for look in looks:
                    peers = [entry["peer"] for entry in look["contexts"][0]["sockets"]]
                    self.assertIn("%s:%d" % client.getsockname(), peers)
                self.assertLess(looks[0]["unix_ns"], looks[1]["unix_ns"])
                top.send_signal(how)
                self.assertEqual(top.wait(LIMIT_S), 0)

    def test_nothing_to_see_is_no_failure(self):
        done = self.call("--once")
        self.assertEqual(done.returncode, 0)
        self.assertIn("0 contexts", done.stdout)
        self.environment["GPUSOCK_OBSERVE"] = "off"
        _, port = self.start_server()
        self.echo(port)
        self.assertEqual(self.contexts("--folder", str(self.folder)), [])

    def test_a_folder_that_is_not_there_is_a_failure_that_names_it(self):
        done = self.call("--once", "--folder", "/nonexistent")
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nonexistent", done.stderr)

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(self.call("--help").returncode, 0)
        for arguments in (["--interval", "0"], ["--interval", "often"], ["--wait", "0.1"], ["--pid", "me"], ["extra"], ["--sort", "colour"],
                          ["--limit", "0"]):
            with self.subTest(arguments=arguments):
                done = self.call(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertNotEqual(done.stderr, "")


def main():
    if len(sys.argv) != 3 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    Top.top, Top.server = (os.path.abspath(argument) for argument in sys.argv[1:])
    if os.environ.get("GPUSOCK_TEST_NEEDS_GPU") and not os.path.exists("/dev/nvidia0"):
        print("skipped: no GPU here")
        return 77
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
