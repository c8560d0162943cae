#!/usr/bin/env python3
"""Promises of gpusock-doctor on whatever machine this is: it ends, and page, JSON and exit status say the same.

usage: test_doctor.py GPUSOCK_DOCTOR

Exit status: 0 kept, 1 broken, 2 misuse.
"""
import json
import os
import subprocess
import sys
import unittest

LIMIT_S = 60
NICS = "/sys/class/infiniband"


class Doctor(unittest.TestCase):
    program = ""

    def call(self, *arguments, **environment):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env=dict(os.environ, **environment))

    def test_page_json_and_exit_status_agree(self):
        page, done = self.call(), self.call("--json")
        report = json.loads(done.stdout)
        self.assertEqual(report["well"], all(finding["level"] != "fix" for finding in report["findings"]))
        self.assertEqual(done.returncode, 0 if report["well"] else 1, done.stderr)
        self.assertEqual(page.returncode, done.returncode)
        self.assertEqual("All is well." in page.stdout, report["well"])
        for finding in report["findings"]:
            self.assertIn(finding["says"], " ".join(page.stdout.split()))

    def test_every_kind_of_peer_gets_an_answer(self):
        links = json.loads(self.call("--json").stdout)["links"]
        self.assertEqual([choice["peer"] for choice in links], ["same process", "same host", "other host"])
        for choice in links:
            self.assertIn(choice["link"], ("p2p", "verbs", "fabric", "tcp", "none"))

    @unittest.skipIf(os.path.isdir(NICS) and os.listdir(NICS), "this machine has RDMA NICs")
    def test_without_rdma_it_says_that_this_is_what_lacks(self):
        report = json.loads(self.call("--json", GPUSOCK_SECRET="secret", GPUSOCK_LINK="auto").stdout)
        self.assertIn("no RDMA NICs", [finding["says"] for finding in report["findings"]])
        other_host = report["links"][2]
        if other_host["link"] == "none":
            self.assertNotEqual(other_host["why"], "")
        else:
            self.assertEqual(other_host["link"], "tcp")
            self.assertRegex(other_host["why"], "no better one: (there is no RDMA NIC|this build has no verbs link)")
            self.assertNotIn("ulimit", other_host["command"] or "", "locked memory would change nothing")

    def test_it_looks_at_the_interfaces_of_its_own_network_namespace(self):
        """/sys shows those of the namespace in which it was mounted."""
        unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("this user may make no network namespace")
        done = subprocess.run([*unshare, self.program, "--json"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("the loopback interface is down: nothing reaches 127.0.0.1",
                      [finding["says"] for finding in json.loads(done.stdout)["findings"]])

    def test_something_to_mend_is_exit_status_1_with_its_command(self):
        done = self.call("--json", GPUSOCK_LINK="carrier-pigeon")
        self.assertEqual(done.returncode, 1)
        fix = [finding for finding in json.loads(done.stdout)["findings"] if finding["level"] == "fix"]
        self.assertIn("unset GPUSOCK_LINK", [finding["command"] for finding in fix])

    @unittest.skipUnless(os.environ.get("GPUSOCK_TEST_FABRIC"), "this build has no fabric link")
    def test_a_provider_that_libfabric_does_not_have_is_to_be_mended(self):
        done = self.call("--json", GPUSOCK_FABRIC_PROVIDER="tpc", GPUSOCK_LINK="fabric")
        self.assertEqual(done.returncode, 1, done.stderr)
        report = json.loads(done.stdout)
        says, = [finding["says"] for finding in report["findings"] if "GPUSOCK_FABRIC_PROVIDER='tpc'" in finding["says"]]
        self.assertRegex(says, "there are: .*tcp")
        self.assertEqual([choice["link"] for choice in report["links"][:2]], ["none", "none"])
        report = json.loads(self.call("--json", GPUSOCK_FABRIC_PROVIDER="tcp").stdout)
        self.assertNotIn("GPUSOCK_FABRIC_PROVIDER='", str(report["findings"]))

    def test_help_succeeds_and_misuse_exits_2(self):
        self.assertEqual(self.call("--help").returncode, 0)
        for arguments in (["--cure"], ["extra"]):
            done = self.call(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertNotEqual(done.stderr, "")


def main():
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        return 0 if len(sys.argv) == 2 else 2
    Doctor.program = os.path.abspath(sys.argv[1])
    return 0 if unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
