//! Requests of one connection are classified and counted one by one.

use super::*;

#[tokio::test]
async fn each_request_is_judged_by_itself() {
    let guard = "guard {
        rule \"few\" { path \"/few\"; rate 1 burst=2 per=\"hour\"; always; answer 429; }
        rule \"none\" { path \"/none\"; refuse; always; answer \"reset\"; }
    }";
    let (_weir, address) = Weir::front(guard, "route \"/*\" { respond \"hello\"; }");
    let (sender, _connection) = connect(address).await;
    let ask = |path: &'static str| {
        let mut sender = sender.clone();
        async move {
            let request = request(Method::GET, path).body(empty()).unwrap();
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            response.into_body().collect().await.map(|_| status)
        }
    };
    let few = futures_util::future::join_all((0..5).map(|_| ask("/few"))).await;
    let mut few: Vec<u16> = few.into_iter().map(|status| status.unwrap()).collect();
    few.sort_unstable();
    assert_eq!(few, [200, 200, 429, 429, 429]);
    // Only the stream is reset.
    let error = ask("/none").await.unwrap_err();
    assert!(format!("{error:?}").contains("ENHANCE_YOUR_CALM"), "{error:?}");
    assert_eq!(ask("/other").await.unwrap(), 200);
}
